"""The machine behind `tests/laws/test_doubled_runners.py`: real runners over real services and a
real PostgreSQL, with a network, a clock, a provider and clients that a schedule drives.

- `clock`: an event loop whose time only the schedule moves, and that says when nothing runs.
- `network`: every call of a runner or executor waits here until the schedule decides on it.
- `provider`: answers that a schedule draws, in place of the adapter.
- `stage`: the services, as one process has them; `runners`: processes that compete on it.
- `schedule`: what hypothesis draws: a seed for the order of things, and faults.
- `machine`: plays one schedule on a new session, then drains it; `timekeeper` lets time pass.
- `theatre`: plays many of them, one after the other.
- `client`: the application that sends, answers, confirms and interrupts.
- `evidence`, `checks`, `public_log`: what is left in the end, and what must hold of it;
  `turn_ends`: what the log does not say of that.
- `mutants`: the protocol with one rule removed.
"""
