"""What hypothesis draws: a seed, from which faults and the order of things follow, and which of the
faults happen. A failing schedule shrinks to the faults that it needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st

FATES = (
    *("lost request", "late request", "lost answer", "held answer", "twice"),
    *("die after", "stall after"),
)
"""What may become of a call."""

_FAULTS = 24
_STEPS_BETWEEN_MAX = 10


@dataclass(frozen=True)
class Theme:
    """What a schedule is about: its faults, which calls they wait for, and what the model does.

    `answers` are kinds of answers: `t` for text only, else a letter for each call (`p` the platform
    runs it, `a` the platform runs it if it may, `c` the client answers it, `u` nobody knows it).
    """

    faults: Sequence[str]
    calls: Sequence[str]
    answers: Sequence[str]
    losses_max: int = 4
    """Claims that may be lost; from 6 on a turn may be lost too often and is taken out."""
    message_bytes: int = 0
    """How long messages are, at least."""
    request_bytes_max: int = 0
    """Larger requests are refused by the provider; 0 for none."""


THEMES = {
    "everything": Theme(
        (
            *FATES,
            *("late request", "lost answer", "twice", "die after", "stall after"),
            *("pause", "stall", "kill", "drain", "cut", "expire", "tools die", "long wait"),
            *("message", "answer", "answer", "answer", "again", "interrupt", "ambush"),
        ),
        ("", "", "", "ANSWER", "RESULTS", "AppendRound|CommitTurn", "Execute", "Journal|Context"),
        ("t", "p", "c", "cc", "cc", "pc", "a", "ac", "pa", "pca", "ccc", "pp", "cu"),
    ),
    "writes": Theme(
        (
            *("late request", "lost answer", "die after", "stall after", "twice"),
            *("ambush", "ambush", "kill", "expire", "cut", "stall"),
            *("answer", "answer", "message", "interrupt"),
        ),
        ("ANSWER", "ANSWER", "RESULTS", "AppendRound", "AppendProgress", "CommitTurn", "Fence"),
        ("t", "c", "cc", "p", "pc"),
    ),
    "executors": Theme(
        (
            *("twice", "twice", "twice", "lost answer", "late request", "die after"),
            *("tools die", "stall", "expire", "long wait", "held answer", "kill"),
            *("answer", "answer", "interrupt"),
        ),
        ("Execute", "Execute", "Execute", "StartOperation", "Outcome|CompleteOperation", ""),
        ("p", "pp", "a", "pa", "aa", "pca"),
    ),
    "closing": Theme(
        (
            *("interrupt", "interrupt", "ambush", "die after", "die after", "stall after"),
            *("lost answer", "expire", "late request"),
            *("answer", "answer", "answer", "message", "again"),
        ),
        (
            "RESULTS",
            "RESULTS",
            "AppendProgress",
            "CommitTurn",
            "Close|CompleteClient",
            "AppendRound",
        ),
        ("cc", "ccc", "pc", "pca", "ac", "cca"),
    ),
    "losses": Theme(
        (
            *("die after", "die after", "die after", "stall after", "kill", "stall", "expire"),
            *("answer", "answer", "message", "interrupt"),
        ),
        ("", "Fence", "Fence", "ANSWER", "RESULTS", "AppendRound", "AppendProgress", "Execute"),
        ("t", "c", "pc", "p", "cc", "a"),
        losses_max=16,
    ),
    "overflows": Theme(
        (
            *("message", "message", "message", "answer", "answer", "interrupt"),
            *("late request", "lost answer", "die after", "stall after", "twice", "kill", "expire"),
        ),
        ("Context", "Context", "Context", "Journal", "AppendRound", "BeginRound", "ANSWER", ""),
        ("t", "t", "c", "p"),
        message_bytes=4_000,
        request_bytes_max=11_000,
    ),
}


_CHOSEN = (*(name for name in THEMES if name != "overflows"), "everything")
"""Its order is part of what a seed means."""
_OVERFLOWS_EVERY = 7


class Fault(NamedTuple):
    """`after` so many steps, `kind` happens: to a call like `call`, as much as `detail` says."""

    after: int
    kind: str
    call: str = ""
    detail: int = 0


@dataclass(frozen=True)
class Schedule:
    """One example."""

    seed: int
    theme: str
    runners: int
    faults: tuple[Fault, ...]

    @classmethod
    def of(
        cls, seed: int, happens: tuple[bool, ...] = (True,) * _FAULTS, theme: str = ""
    ) -> "Schedule":
        """The schedule of a seed, without the faults that do not happen."""
        random = Random(seed)
        chosen = random.choice(_CHOSEN)
        if seed % _OVERFLOWS_EVERY == _OVERFLOWS_EVERY - 1:
            chosen = "overflows"
        theme = theme or chosen
        runners = random.choice((2, 3))
        faults = [_fault(random, THEMES[theme]) for _ in range(_FAULTS)]
        kept = [
            fault if happening else Fault(fault.after, "nothing")
            for fault, happening in zip(faults, happens, strict=True)
        ]
        return cls(seed, theme, runners, tuple(kept))


def _fault(random: Random, theme: Theme) -> Fault:
    after = random.randint(0, _STEPS_BETWEEN_MAX)
    kind, call = random.choice(theme.faults), random.choice(theme.calls)
    return Fault(after, kind, call, random.randrange(12))


def schedules() -> st.SearchStrategy[Schedule]:
    """Schedules in which most of the faults happen."""
    happens = st.tuples(*[st.sampled_from((False, True, True, True))] * _FAULTS)
    return st.builds(Schedule.of, st.integers(0, 2**32 - 1), happens)
