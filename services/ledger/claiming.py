"""Who may run a turn: claims, leases that end without a commit, the check of every write. Pure."""

from datetime import datetime, timedelta

from counterfoil.ledger.v1 import turn_pb2

from foundation.errors import deleted, fenced
from services.ledger import barrier, interrupt, notices
from services.ledger.lane import EPOCH_MAX, TAKEOVERS_MAX, Ended, Lane, Turn

RUNNING = turn_pb2.TURN_STATE_RUNNING
SETTLING = turn_pb2.TURN_STATE_SETTLING

_LOST_MESSAGE = "The turn was lost by its runners too often; send a message to go on."
_CORRUPT_MESSAGE = "The turn's record does not match; an operator has to look at this session."
_UNAVAILABLE_PAUSE = timedelta(seconds=1)
_FAILED_PAUSE = timedelta(milliseconds=100)
"""After the first failure; twice as long after each further one."""


def claimable(lane: Lane) -> bool:
    """Whether the front turn can be claimed now."""
    thread = lane.thread
    if thread.deleted or thread.lease_stream is not None or thread.claimable_at is None:
        return False
    return thread.claimable_at <= lane.now


def claim(lane: Lane, stream_id: str) -> bool | None:
    """Hand the front turn to a stream; whether it is a takeover. None: it was quarantined instead.

    Freezes and marks the input at the first claim, and what was answered at a resume; publishes
    that the session runs, unless it does. A turn that is publicly over is claimed in silence.
    """
    thread, turn = lane.thread, lane.turns[0]
    takeover = thread.ended != Ended.COMMITTED
    if thread.ended == Ended.LOST:
        if turn.takeovers >= TAKEOVERS_MAX:
            interrupt.quarantine(lane, _LOST_MESSAGE)
            return None
        turn.takeovers += 1
    thread.epoch += 1
    thread.lease_stream, thread.ended = stream_id, Ended.LOST
    lane.lease_taken = True
    turn.not_before = None
    if turn.state != SETTLING:
        turn.state = RUNNING
        notices.run(lane)
        _mark_input(lane, turn)
        if not turn.interrupted:
            barrier.mark_handled(lane)
    lane.refresh_claimable()
    return takeover


def keep(lane: Lane, epoch: int, stream_id: str) -> bool:
    """A runner that attached again goes on with a claim, unless that ended or was passed on."""
    thread = lane.thread
    if thread.deleted or thread.epoch != epoch or thread.ended == Ended.COMMITTED:
        return False
    if not lane.turns or lane.turns[0].state not in (RUNNING, SETTLING):
        return False
    thread.lease_stream, thread.ended = stream_id, Ended.LOST
    lane.lease_taken = True
    return True


def release(
    lane: Lane, epoch: int, reason: "turn_pb2.ReleaseReason.ValueType", epoch_seen: int = 0
) -> bool:
    """A runner gives its lease back without a commit; False when it holds none.

    `epoch_seen` is what another authority has seen of the thread: after a restored backup the
    ledger's own epoch may lag behind it, and every claim would be refused there.
    """
    thread = lane.thread
    if thread.deleted or thread.epoch != epoch or thread.lease_stream is None or not lane.turns:
        return False
    turn = lane.turns[0]
    thread.lease_stream, thread.ended = None, Ended.LOST
    if reason == turn_pb2.RELEASE_REASON_CORRUPT:
        interrupt.quarantine(lane, _CORRUPT_MESSAGE, corrupt=True)
        return True
    thread.epoch = max(thread.epoch, min(epoch_seen, EPOCH_MAX - 1))
    if turn.state == SETTLING or not turn.interrupted:  # what is over needs no haste
        turn.not_before = _pause_until(lane, turn, reason)
    if reason in _EXCUSED:
        thread.ended = Ended.EXCUSED
    lane.refresh_claimable()
    return True


def _pause_until(
    lane: Lane, turn: Turn, reason: "turn_pb2.ReleaseReason.ValueType"
) -> datetime | None:
    """When the turn may be claimed again: a fault that lasts seconds must not use up all of its
    attempts."""
    if reason == turn_pb2.RELEASE_REASON_UNAVAILABLE:
        return lane.now + _UNAVAILABLE_PAUSE
    if reason in _EXCUSED:
        return None
    return lane.now + _FAILED_PAUSE * 2**turn.takeovers


_EXCUSED = (
    turn_pb2.RELEASE_REASON_UNAVAILABLE,
    turn_pb2.RELEASE_REASON_DRAINING,
    turn_pb2.RELEASE_REASON_FENCED,
)
"""Reasons that say nothing about the turn: not counted against it."""


def owned(lane: Lane, turn_id: str, epoch: int) -> Turn:
    """The turn that a write under `epoch` is about.

    Raises DELETED, or FENCED when a newer claim exists, the lease is gone, or the turn is over.
    """
    thread = lane.thread
    if thread.deleted:
        raise deleted(lane.session.thread_id)
    turn = lane.front
    if turn is None or turn.turn_id != turn_id or turn.state not in (RUNNING, SETTLING):
        raise fenced(epoch, thread.epoch)
    if thread.epoch != epoch or thread.lease_stream is None:
        raise fenced(epoch, thread.epoch)
    return turn


def _mark_input(lane: Lane, turn: Turn) -> None:
    if turn.marked:
        return
    turn.marked = True
    lane.mark(turn.input_event_id, "user.message", turn.input_position)
    if turn.system_event_id is not None and turn.system_position is not None:
        lane.mark(turn.system_event_id, "system.message", turn.system_position)
