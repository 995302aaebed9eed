"""What a committed change counts as in the metrics."""

from counterfoil.ledger.v1 import session_events_pb2, turn_pb2

from foundation import measures
from services.ledger.change import Change

_QUARANTINED = turn_pb2.TURN_STATE_QUARANTINED
_EXHAUSTED = session_events_pb2.STOP_REASON_TYPE_RETRIES_EXHAUSTED

_OUTCOMES = {
    turn_pb2.COMMIT_KIND_PARKED: measures.TURNS.cell("parked"),
    turn_pb2.COMMIT_KIND_DONE: measures.TURNS.cell("done"),
    turn_pb2.COMMIT_KIND_INTERRUPTED: measures.TURNS.cell("interrupted"),
    turn_pb2.COMMIT_KIND_SETTLED: measures.TURNS.cell("settled"),
}
_GIVEN_UP = measures.TURNS.cell("quarantined")
_QUARANTINES = measures.QUARANTINES.cell()
_TAKEOVERS = measures.TAKEOVERS.cell()


def count(change: Change) -> None:
    """Called with every committed change."""
    for commit in change.lane.new_commits:
        cell = _OUTCOMES.get(turn_pb2.CommitKind.ValueType(commit.kind))
        if cell is not None:
            cell.value += 1
    if change.takeover:
        _TAKEOVERS.value += 1
    if _given_up(change):
        _GIVEN_UP.value += 1
        _QUARANTINES.value += 1


def _given_up(change: Change) -> bool:
    front = change.lane.front
    before = None if front is None else change.before.turns.get(front.turn_id)
    if front is None or before is None:
        return False
    exhausted = front.stop_reason == _EXHAUSTED != before.stop_reason
    return exhausted or front.state == _QUARANTINED != before.state
