"""The ledger's own events: status, usage, errors, ends of spans. Pure."""

from collections.abc import Iterable
from datetime import timedelta

from counterfoil.ledger.v1 import events_pb2, session_events_pb2, session_pb2, span_events_pb2
from counterfoil.types.v1 import reference_pb2, usage_pb2

from foundation import ids
from services.ledger.lane import EPOCH_MAX, Lane, Session, Turn

_MS = timedelta(milliseconds=1)


def run(lane: Lane) -> None:
    """The session runs, unless it does already."""
    if lane.running:
        return
    thread = session_events_pb2.ThreadStatusRunning(
        agent_name=lane.session.agent_name, session_thread_id=lane.session.thread_id
    )
    lane.publish(events_pb2.Event(id=lane.next_id(), thread_status_running=thread))
    running = session_events_pb2.SessionStatusRunning()
    lane.publish(events_pb2.Event(id=lane.next_id(), session_status_running=running))
    lane.session.status = session_pb2.SESSION_STATUS_RUNNING
    lane.session.running_since = lane.now


def idle(
    lane: Lane,
    reason: session_events_pb2.StopReason,
    refusal: session_events_pb2.StopDetails | None = None,
) -> None:
    """The session waits. The thread's idle vouches for the transcript's head."""
    session = lane.session
    _stop_clock(lane)
    details = _details(reason, refusal)
    thread = session_events_pb2.ThreadStatusIdle(
        agent_name=session.agent_name,
        session_thread_id=session.thread_id,
        stop_reason=reason,
        stop_details=details,
    )
    lane.publish(events_pb2.Event(id=lane.next_id(), thread_status_idle=thread), _head(lane))
    used = session_events_pb2.SessionUsage(usage=usage(session))
    lane.publish(events_pb2.Event(id=lane.next_id(), session_usage=used))
    waits = session_events_pb2.SessionStatusIdle(stop_reason=reason, stop_details=details)
    lane.publish(events_pb2.Event(id=lane.next_id(), session_status_idle=waits))
    session.status = session_pb2.SESSION_STATUS_IDLE


def rescheduled(lane: Lane) -> None:
    """The session waits for a retry; nobody has to do anything."""
    session = lane.session
    _stop_clock(lane)
    waits = session_events_pb2.SessionStatusRescheduled()
    lane.publish(events_pb2.Event(id=lane.next_id(), session_status_rescheduled=waits))
    thread = session_events_pb2.ThreadStatusRescheduled(
        agent_name=session.agent_name, session_thread_id=session.thread_id
    )
    lane.publish(events_pb2.Event(id=lane.next_id(), thread_status_rescheduled=thread))
    session.status = session_pb2.SESSION_STATUS_RESCHEDULING


def stopped(
    lane: Lane,
    reason: "session_events_pb2.StopReasonType.ValueType",
    event_ids: tuple[str, ...] = (),
    refusal: session_events_pb2.StopDetails | None = None,
) -> None:
    """The session waits for `reason`; `event_ids` with `requires_action`, `refusal` with one."""
    idle(lane, session_events_pb2.StopReason(type=reason, event_ids=event_ids), refusal)


def usage(session: Session) -> session_events_pb2.Usage:
    """The session's usage so far, as clients read it."""
    return session_events_pb2.Usage(
        input_tokens=session.input_tokens,
        output_tokens=session.output_tokens,
        cache_read_input_tokens=session.cache_read_tokens,
        cache_creation=session_events_pb2.CacheCreation(
            ephemeral_1h_input_tokens=session.cache_creation_1h_tokens,
            ephemeral_5m_input_tokens=session.cache_creation_tokens
            - session.cache_creation_1h_tokens,
        ),
        active_seconds=session.active_ms / 1000,
        server_tool_use=session_events_pb2.ServerToolUse(
            web_search_requests=session.web_searches, web_fetch_requests=session.web_fetches
        ),
    )


COMPACTED = "agent.thread_context_compacted"


def compacted(lane: Lane, turn: Turn, id: str) -> None:
    """What the model sees of the history got a new beginning, from the next request on."""
    close_span(lane, turn)
    event = events_pb2.Event(id=id)
    event.agent_thread_context_compacted.SetInParent()
    lane.publish(event)
    lane.compaction_event_id = id


def open_span(lane: Lane, turn: Turn, round_: int, attempt: reference_pb2.Attempt, id: str) -> None:
    """A model request begins; a request of the turn that is still open was lost."""
    close_span(lane, turn)
    lane.publish(events_pb2.Event(id=id, model_request_start=span_events_pb2.ModelRequestStart()))
    turn.attempt_round, turn.span_event_id, turn.span_open = round_, id, True
    turn.attempt_epoch, turn.attempt_number = attempt.epoch, attempt.number


def close_span(lane: Lane, turn: Turn, tokens: usage_pb2.ModelUsage | None = None) -> None:
    """The open model request ends: with its usage, or as an error."""
    _end_span(lane, turn, tokens or usage_pb2.ModelUsage(), is_error=tokens is None)


def lose_span(lane: Lane, turn: Turn, lost: usage_pb2.ModelUsage | None) -> None:
    """The open model request ends without an answer; `lost` is what it is known to have used."""
    _end_span(lane, turn, lost or usage_pb2.ModelUsage(), is_error=True)


def _end_span(lane: Lane, turn: Turn, known: usage_pb2.ModelUsage, *, is_error: bool) -> None:
    """Once for each span, and its usage is added here alone."""
    if not turn.span_open or turn.span_event_id is None:
        return
    turn.span_open = False
    end = span_events_pb2.ModelRequestEnd(
        model_request_start_id=turn.span_event_id,
        is_error=is_error,
        model_usage=span_events_pb2.SpanUsage(
            input_tokens=known.input_tokens,
            output_tokens=known.output_tokens,
            cache_creation_input_tokens=known.cache_creation_input_tokens,
            cache_read_input_tokens=known.cache_read_input_tokens,
            speed=span_events_pb2.ModelSpeed.ValueType(known.speed),
        ),
    )
    id_ = ids.derived("event", "span end", turn.span_event_id)
    lane.publish(events_pb2.Event(id=id_, model_request_end=end))
    count(lane.session, [known])


def count(session: Session, used: Iterable[usage_pb2.ModelUsage]) -> None:
    """Add what provider calls used to the session's usage."""
    for known in used:
        session.input_tokens += known.input_tokens
        session.output_tokens += known.output_tokens
        session.cache_read_tokens += known.cache_read_input_tokens
        session.cache_creation_tokens += known.cache_creation_input_tokens
        session.cache_creation_1h_tokens += known.cache_creation_1h_input_tokens
        session.web_searches += known.web_search_requests
        session.web_fetches += known.web_fetch_requests


def exhausted(lane: Lane, message: str) -> None:
    """A turn failed and is not tried again by itself."""
    detail = session_events_pb2.ErrorDetail(
        unknown_error=session_events_pb2.PlainError(),
        message=message,
        retry_status=session_events_pb2.RetryStatus(
            type=session_events_pb2.RETRY_STATUS_TYPE_EXHAUSTED
        ),
    )
    failed = session_events_pb2.SessionError(error=detail)
    lane.publish(events_pb2.Event(id=lane.next_id(), session_error=failed))


def updated(lane: Lane, change: session_events_pb2.SessionUpdated) -> None:
    """The session's title, metadata or agent changed."""
    lane.publish(events_pb2.Event(id=lane.next_id(), session_updated=change))


def terminated(lane: Lane) -> None:
    """The session and its thread are over."""
    session = lane.session
    thread = session_events_pb2.ThreadStatusTerminated(
        agent_name=session.agent_name, session_thread_id=session.thread_id
    )
    lane.publish(events_pb2.Event(id=lane.next_id(), thread_status_terminated=thread))
    over = session_events_pb2.SessionStatusTerminated()
    lane.publish(events_pb2.Event(id=lane.next_id(), session_status_terminated=over))
    session.status = session_pb2.SESSION_STATUS_TERMINATED


def bury(lane: Lane) -> None:
    """The last event of the session; nothing is newer than its thread's epoch any more."""
    lane.publish(
        events_pb2.Event(id=lane.next_id(), session_deleted=session_events_pb2.SessionDeleted())
    )
    thread = lane.thread
    thread.epoch, thread.deleted = EPOCH_MAX, True
    thread.lease_stream, thread.claimable_at = None, None


def _stop_clock(lane: Lane) -> None:
    session = lane.session
    if session.running_since is not None:
        session.active_ms += max(0, (lane.now - session.running_since) // _MS)
        session.running_since = None


def _details(
    reason: session_events_pb2.StopReason, refusal: session_events_pb2.StopDetails | None
) -> session_events_pb2.StopDetails | None:
    if reason.type != session_events_pb2.STOP_REASON_TYPE_REFUSAL:
        return None
    details = session_events_pb2.StopDetails(type="refusal")
    if refusal is not None:
        details.MergeFrom(refusal)
        details.type = "refusal"
    return details


def _head(lane: Lane) -> reference_pb2.Head | None:
    if lane.thread.head_seq == 0:
        return None
    return reference_pb2.Head(seq=lane.thread.head_seq, digest=lane.thread.head_digest)
