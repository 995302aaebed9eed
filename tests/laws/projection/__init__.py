"""The projection protocol as a state machine over the real core of the context authority.

`authorities.py` plays transcript, journal, files and records in memory, `expected.py` says what the
model must be shown (it shares no code with what it judges), `machine.py` draws what happens,
`faults.py` removes one rule of the protocol each, and `stored.py` plays the same over PostgreSQL.
"""
