"""What an interrupt does in each state of the turn that it hits, and how quarantine ends one."""

from counterfoil.ledger.v1 import events_pb2, session_events_pb2, turn_pb2

from services.ledger import barrier, notices
from services.ledger.lane import OVER, TAKEOVERS_MAX, Ended, Lane, Turn

END_TURN = session_events_pb2.STOP_REASON_TYPE_END_TURN
RETRIES_EXHAUSTED = session_events_pb2.STOP_REASON_TYPE_RETRIES_EXHAUSTED
PARKED = turn_pb2.TURN_STATE_PARKED
SETTLING = turn_pb2.TURN_STATE_SETTLING
QUARANTINED = turn_pb2.TURN_STATE_QUARANTINED

_INTERRUPT = "user.interrupt"


def submit(lane: Lane, event: events_pb2.Event) -> int:
    """A client interrupts the thread's oldest turn that is not publicly over; the event's position.

    A parked turn is closed here; a running or queued one gets a flag, and its owner closes it. With
    no such turn, or one that was interrupted before, the event changes nothing.
    """
    target = next((turn for turn in lane.turns if turn.state not in OVER), None)
    if target is None or target.interrupted:
        return lane.publish(event)
    target.interrupted = True
    target.not_before = None
    if target.state == PARKED:
        position = lane.publish(event)
        _close_parked(lane, target)
        return position
    position = lane.queue(event)
    target.interrupt_event_id, target.interrupt_position = event.id, position
    if target is lane.front:
        barrier.close_actions(lane)
    return position


def mark(lane: Lane, turn: Turn) -> None:
    """The interrupt of a turn takes effect."""
    if turn.interrupt_event_id is not None and turn.interrupt_position is not None:
        lane.mark(turn.interrupt_event_id, _INTERRUPT, turn.interrupt_position)
        turn.interrupt_event_id = turn.interrupt_position = None


def quarantine(lane: Lane, message: str, *, corrupt: bool = False) -> None:
    """The front turn failed too often, or its transcript does not match: it is publicly over.

    The first time it is left to be settled with what comes next; one that cannot be settled either,
    or whose transcript is corrupt, waits for the next input or for an operator.
    """
    turn = lane.turns[0]
    settled_before = turn.state in OVER
    if not settled_before:
        notices.close_span(lane, turn)
        barrier.close_publicly(lane)
        mark(lane, turn)
        turn.stop_reason = RETRIES_EXHAUSTED
    turn.state = QUARANTINED if settled_before or corrupt else SETTLING
    turn.takeovers, turn.released, turn.not_before = TAKEOVERS_MAX, False, None
    lane.thread.lease_stream, lane.thread.ended = None, Ended.EXCUSED
    # No owner that comes back may take the turn for its own again.
    lane.thread.epoch += 1
    if lane.running:
        notices.exhausted(lane, message)
        notices.stopped(lane, RETRIES_EXHAUSTED)
    if turn.state == SETTLING and lane.waiting is not None:
        notices.run(lane)
    lane.refresh_claimable()


def try_again(lane: Lane) -> None:
    """A turn that could not be settled gets one more attempt."""
    turn = lane.front
    if turn is not None and turn.state == QUARANTINED:
        turn.state = SETTLING
        turn.takeovers, lane.thread.ended = TAKEOVERS_MAX, Ended.EXCUSED


def release(lane: Lane, turn_id: str) -> bool:
    """An operator gives a quarantined turn one more attempt; False when it is not quarantined."""
    turn = lane.front
    if turn is None or turn.turn_id != turn_id or turn.state not in OVER:
        return False
    if turn.stop_reason != RETRIES_EXHAUSTED and turn.state != QUARANTINED:
        return False
    try_again(lane)
    turn.released = True
    if lane.waiting is not None:
        notices.run(lane)
    lane.refresh_claimable()
    return True


def _close_parked(lane: Lane, turn: Turn) -> None:
    """Nothing of a parked turn was started without an answer, so the ledger goes first."""
    barrier.close_publicly(lane)
    notices.stopped(lane, END_TURN)
    turn.state, turn.stop_reason = SETTLING, END_TURN
