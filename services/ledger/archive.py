"""How a session ends for good. Pure."""

from counterfoil.ledger.v1 import session_events_pb2, turn_pb2

from services.ledger import barrier, interrupt, notices
from services.ledger.lane import OVER, Lane

_SETTLING = turn_pb2.TURN_STATE_SETTLING


def archive(lane: Lane) -> None:
    """End a session that does not run: nothing is publicly open behind it, and nothing comes.

    A turn that is parked or waits for a retry is closed as an interrupt closes a parked one, but
    without an idle: `terminated` says more. Queued input is dropped without its mark, because
    nothing processed it. What is left to settle is handed to a runner, which publishes nothing.
    """
    turn = lane.front
    if turn is not None and turn.state not in OVER:
        if turn.marked:
            notices.close_span(lane, turn)
            barrier.close_publicly(lane)
        interrupt.mark(lane, turn)
        turn.state, turn.stop_reason = _SETTLING, session_events_pb2.STOP_REASON_TYPE_END_TURN
        turn.interrupted, turn.not_before = True, None
    lane.drop_waiting()
    if turn is not None and turn.state == _SETTLING:
        turn.released = True
    notices.terminated(lane)
    lane.refresh_claimable()
