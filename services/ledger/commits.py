"""How a claim ends by its owner's commit. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from counterfoil.ledger.v1 import events_pb2, session_events_pb2, turn_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import usage_pb2

from foundation.errors import Failure, invalid
from services.ledger import barrier, interrupt, notices
from services.ledger.lane import Commit, Ended, Lane, Source, Turn

Kind = turn_pb2.CommitKind
AnswerValue = turn_pb2.CommitAnswer

PARKED = turn_pb2.COMMIT_ANSWER_PARKED
DONE = turn_pb2.COMMIT_ANSWER_DONE
SETTLED = turn_pb2.COMMIT_ANSWER_SETTLED
CONTINUE = turn_pb2.COMMIT_ANSWER_CONTINUE
INTERRUPTED = turn_pb2.COMMIT_ANSWER_INTERRUPTED
RESCHEDULED = turn_pb2.COMMIT_ANSWER_RESCHEDULED

_NO_REASON = session_events_pb2.STOP_REASON_TYPE_UNSPECIFIED
_END_TURN = session_events_pb2.STOP_REASON_TYPE_END_TURN


@dataclass(frozen=True, slots=True)
class Said:
    """What a turn's owner says of its end: errors, what a model request without an answer and
    summaries cost; with a refusal, what the provider says about it."""

    errors: Sequence[events_pb2.Event] = ()
    lost_usage: usage_pb2.ModelUsage | None = None
    retry_after: timedelta = timedelta()
    refusal: session_events_pb2.StopDetails | None = None
    summary_usage: Sequence[usage_pb2.ModelUsage] = ()


NOTHING_SAID = Said()


def commit(
    lane: Lane,
    turn: Turn,
    kind: "Kind.ValueType",
    stop_reason: "session_events_pb2.StopReasonType.ValueType" = _NO_REASON,
    said: Said = NOTHING_SAID,
) -> "AnswerValue.ValueType":
    """Park or end the front turn, whose entries were recorded before.

    `interrupted` and `continue` change nothing of the claim. Raises GAP while a call has no public
    result or a round no recorded results entry.
    """
    settling = turn.state == turn_pb2.TURN_STATE_SETTLING
    if settling != (kind == turn_pb2.COMMIT_KIND_SETTLED):
        raise _gap("a turn that is publicly over can only be settled, and only such a turn")
    if kind == turn_pb2.COMMIT_KIND_PARKED:
        return _park(lane, turn)
    if turn.interrupted and kind in _GIVES_WAY:
        return INTERRUPTED
    if kind == turn_pb2.COMMIT_KIND_RESCHEDULED:
        return _reschedule(lane, turn, said)
    if not turn.interrupted and kind == turn_pb2.COMMIT_KIND_INTERRUPTED:
        raise _gap("no interrupt waits for this turn")
    if turn.round_open:
        raise _gap(f"the results of round {turn.round} were not recorded")
    if kind == turn_pb2.COMMIT_KIND_SETTLED:
        return _end(lane, turn, kind, SETTLED)
    _close(lane, turn, said)
    return _finish(lane, turn, kind, stop_reason or _END_TURN, said.refusal)


def stored(answer: int, epoch: int, current: int) -> "AnswerValue.ValueType | None":
    """What a repeat of a commit is answered; None: the stored answer was for another claim."""
    if answer == CONTINUE and epoch != current:
        return None
    return AnswerValue.ValueType(answer)


def _park(lane: Lane, turn: Turn) -> "AnswerValue.ValueType":
    if turn.continued_epoch == lane.thread.epoch:
        return CONTINUE
    if turn.interrupted:
        return INTERRUPTED
    unpublished = next(
        (
            call
            for call in lane.calls
            if call.result_source == Source.NONE and not call.waits_for_client
        ),
        None,
    )
    if unpublished is not None:
        raise _gap(f"the result of {unpublished.operation_id} was not published")
    if not barrier.open_calls(lane):
        turn.continued_epoch = lane.thread.epoch
        barrier.mark_handled(lane)
        return CONTINUE
    _remember(lane, turn, turn_pb2.COMMIT_KIND_PARKED, PARKED)
    turn.state = turn_pb2.TURN_STATE_PARKED
    barrier.announce(lane)
    _end_claim(lane)
    return PARKED


def _reschedule(lane: Lane, turn: Turn, said: Said) -> "AnswerValue.ValueType":
    """The turn waits, without a lease, and clients see that it does."""
    _remember(lane, turn, turn_pb2.COMMIT_KIND_RESCHEDULED, RESCHEDULED)
    notices.lose_span(lane, turn, said.lost_usage)
    notices.count(lane.session, said.summary_usage)
    _publish_errors(lane, said.errors)
    notices.rescheduled(lane)
    turn.state = turn_pb2.TURN_STATE_RESCHEDULING
    turn.retries += 1
    turn.not_before = lane.now + said.retry_after
    _end_claim(lane)
    return RESCHEDULED


def _close(lane: Lane, turn: Turn, said: Said) -> None:
    """What of the turn is still open publicly ends before its idle."""
    notices.lose_span(lane, turn, said.lost_usage)
    notices.count(lane.session, said.summary_usage)
    barrier.mark_handled(lane)
    _publish_errors(lane, said.errors)
    interrupt.mark(lane, turn)


def _publish_errors(lane: Lane, errors: Sequence[events_pb2.Event]) -> None:
    for index, event in enumerate(errors):
        if event.WhichOneof("event") != "session_error" or not event.id:
            raise invalid(f"errors.{index}", "must be a session.error with an id")
        lane.publish(event)


def _finish(
    lane: Lane,
    turn: Turn,
    kind: "Kind.ValueType",
    stop_reason: "session_events_pb2.StopReasonType.ValueType",
    refusal: session_events_pb2.StopDetails | None,
) -> "AnswerValue.ValueType":
    """The turn is over. One that ended by itself goes over into waiting input without an idle."""
    by_itself = kind == turn_pb2.COMMIT_KIND_DONE and stop_reason == _END_TURN
    if kind == turn_pb2.COMMIT_KIND_INTERRUPTED:
        stop_reason = _END_TURN
    answer = _end(lane, turn, kind, DONE)
    if by_itself and lane.front is not None:
        return answer
    notices.stopped(lane, stop_reason, refusal=refusal)
    if lane.front is not None:
        notices.run(lane)
    return answer


def _end(
    lane: Lane, turn: Turn, kind: "Kind.ValueType", answer: "AnswerValue.ValueType"
) -> "AnswerValue.ValueType":
    _remember(lane, turn, kind, answer)
    lane.finish_front()
    _end_claim(lane)
    return answer


def _end_claim(lane: Lane) -> None:
    lane.thread.lease_stream, lane.thread.ended = None, Ended.COMMITTED
    lane.refresh_claimable()


def _remember(
    lane: Lane, turn: Turn, kind: "Kind.ValueType", answer: "AnswerValue.ValueType"
) -> None:
    lane.new_commits.append(Commit(turn.turn_id, lane.thread.epoch, turn.round, kind, answer))


_GIVES_WAY = (turn_pb2.COMMIT_KIND_DONE, turn_pb2.COMMIT_KIND_RESCHEDULED)
"""Commits that an interrupt comes before."""


def _gap(message: str) -> Failure:
    return Failure(reasons.ERROR_REASON_GAP, message)
