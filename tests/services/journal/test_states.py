"""The table of states: total, forward only, and the same as the protocol's and the database's."""

import itertools

import pytest
from counterfoil.journal.v1 import journal_pb2 as pb

from services.journal.states import TABLE, Effect, State, Step, decide

_FORWARD = {
    (State.ABSENT, State.PREPARED),
    (State.ABSENT, State.STARTED),  # provider calls have no `prepared`
    (State.ABSENT, State.COMPLETED),  # client answers
    (State.ABSENT, State.ABANDONED),
    (State.PREPARED, State.STARTED),
    (State.PREPARED, State.COMPLETED),
    (State.PREPARED, State.ABANDONED),
    (State.STARTED, State.RECEIVED),
    (State.STARTED, State.COMPLETED),
    (State.STARTED, State.AMBIGUOUS),
    (State.RECEIVED, State.COMPLETED),
}
_MODEL_STEPS = (Step.START_MODEL_CALL, Step.MODEL_CALL_ANSWERED, Step.MODEL_CALL_FAILED)


def test_the_table_is_total() -> None:
    assert set(TABLE) == set(Step)
    for row in TABLE.values():
        assert set(row) == set(State)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("step", list(Step))
def test_operations_only_go_forward(step: Step, state: State) -> None:
    effect, after = decide(step, state)
    if effect is not Effect.MOVE:
        assert after is state
    elif step is not Step.MODEL_CALL_ANSWERED:
        assert (state, after) in _FORWARD
    else:
        assert after is State.COMPLETED


def test_states_are_numbered_as_in_the_contract() -> None:
    for state in State:
        name = "UNSPECIFIED" if state is State.ABSENT else state.name
        assert pb.OperationState.Value(f"OPERATION_STATE_{name}") == state


def test_nothing_reaches_started_but_from_prepared_or_as_a_provider_call() -> None:
    reached = {
        (step, state)
        for step, state in itertools.product(Step, State)
        if decide(step, state) == (Effect.MOVE, State.STARTED)
    }
    assert reached == {(Step.START, State.PREPARED), (Step.START_MODEL_CALL, State.ABSENT)}


def test_a_closed_call_never_starts() -> None:
    for state in (State.AMBIGUOUS, State.ABANDONED):
        for step in (Step.START, Step.START_MODEL_CALL):
            assert decide(step, state)[0] is Effect.REFUSE


def test_closing_leaves_nothing_open() -> None:
    open_ = {State.ABSENT, State.PREPARED, State.STARTED, State.RECEIVED}
    for state in State:
        assert decide(Step.CLOSE, state)[1] not in open_


def test_the_table_agrees_with_the_protocols_model() -> None:
    """The model's words for what `Complete`, `Close` and `CompleteClientCalls` do to a state."""
    complete = {s: decide(Step.COMPLETE, s) for s in State}
    assert complete[State.STARTED] == (Effect.MOVE, State.COMPLETED)
    assert complete[State.AMBIGUOUS] == (Effect.LATE, State.AMBIGUOUS)
    close = {s: decide(Step.CLOSE, s)[1] for s in State}
    assert close[State.ABSENT] is State.ABANDONED
    assert close[State.PREPARED] is State.ABANDONED
    assert close[State.STARTED] is State.AMBIGUOUS
    for closed in (State.COMPLETED, State.AMBIGUOUS, State.ABANDONED):
        assert close[closed] is closed
    for state in (State.ABSENT, State.PREPARED):
        assert decide(Step.ANSWER, state) == (Effect.MOVE, State.COMPLETED)
        assert decide(Step.PREPARE, state)[1] is State.PREPARED


def test_only_provider_calls_leave_a_closed_state() -> None:
    for step, state in itertools.product(Step, (State.AMBIGUOUS, State.ABANDONED)):
        if decide(step, state)[0] is Effect.MOVE:
            assert step in _MODEL_STEPS
