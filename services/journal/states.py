"""Where an operation stands and what each step makes of it: one table, nothing else decides.

`prepared → started → [received →] completed | ambiguous`, `prepared → completed` for client
answers, `(absent | prepared) → abandoned`. A provider call has no `prepared`; an answer in the
transcript completes it from every state.
"""

from enum import Enum, IntEnum, auto


class State(IntEnum):
    """As stored, and as in the contract; ABSENT has no row."""

    ABSENT = 0
    PREPARED = 1
    STARTED = 2
    RECEIVED = 3
    COMPLETED = 4
    AMBIGUOUS = 5
    ABANDONED = 6


class Step(Enum):
    """What somebody wants to do."""

    PREPARE = auto()
    START = auto()
    """Authorised by the epoch; a repeat by the nonce."""
    RECEIVE = auto()
    """Authorised by the nonce."""
    COMPLETE = auto()
    """Authorised by the nonce."""
    ANSWER = auto()
    """A client's answer, or a denial."""
    CLOSE = auto()
    START_MODEL_CALL = auto()
    MODEL_CALL_ANSWERED = auto()
    MODEL_CALL_FAILED = auto()


class Effect(Enum):
    """What the step does to the row."""

    MOVE = auto()
    """It goes to the new state."""
    KEEP = auto()
    """It stays; a repeat must bring the same nonce, input or outcome."""
    LATE = auto()
    """It stays; an outcome that differs is kept beside it, once."""
    REFUSE = auto()
    """The step fails."""


Decision = tuple[Effect, State]
"""The effect, and the state afterwards."""

_A, _P, _S, _R, _C, _M, _D = State
_MOVE, _KEEP, _LATE, _REFUSE = Effect


def _row(
    absent: Decision | Effect,
    prepared: Decision | Effect,
    started: Decision | Effect,
    received: Decision | Effect,
    completed: Decision | Effect,
    ambiguous: Decision | Effect,
    abandoned: Decision | Effect,
) -> dict[State, Decision]:
    cells = (absent, prepared, started, received, completed, ambiguous, abandoned)
    return {
        state: cell if isinstance(cell, tuple) else (cell, state)
        for state, cell in zip(State, cells, strict=True)
    }


def _to(state: State) -> Decision:
    return _MOVE, state


TABLE: dict[Step, dict[State, Decision]] = {
    #                 absent   prepared  started  received completed ambiguous abandoned
    Step.PREPARE: _row(_to(_P), _KEEP, _KEEP, _KEEP, _KEEP, _KEEP, _KEEP),
    # A repeated start of an operation that was closed meanwhile must not send its first byte.
    Step.START: _row(_REFUSE, _to(_S), _KEEP, _KEEP, _KEEP, _REFUSE, _REFUSE),
    Step.RECEIVE: _row(_REFUSE, _REFUSE, _to(_R), _KEEP, _KEEP, _LATE, _REFUSE),
    Step.COMPLETE: _row(_REFUSE, _REFUSE, _to(_C), _to(_C), _KEEP, _LATE, _REFUSE),
    Step.ANSWER: _row(_to(_C), _to(_C), _to(_C), _to(_C), _LATE, _LATE, _LATE),
    Step.CLOSE: _row(_to(_D), _to(_D), _to(_M), _to(_C), _KEEP, _KEEP, _KEEP),
    Step.START_MODEL_CALL: _row(_to(_S), _REFUSE, _KEEP, _KEEP, _KEEP, _REFUSE, _REFUSE),
    Step.MODEL_CALL_ANSWERED: _row(_to(_C), _to(_C), _to(_C), _to(_C), _to(_C), _to(_C), _to(_C)),
    Step.MODEL_CALL_FAILED: _row(_to(_C), _to(_C), _to(_C), _to(_C), _KEEP, _KEEP, _KEEP),
}
"""Step → state → decision; total."""


def decide(step: Step, state: State) -> Decision:
    """What `step` does to an operation in `state`."""
    return TABLE[step][state]
