"""Actions: which calls wait for clients, who may answer them, how they are closed. Pure."""

from counterfoil.ledger.v1 import (
    agent_events_pb2,
    client_events_pb2,
    content_pb2,
    events_pb2,
    session_events_pb2,
    turn_pb2,
)
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import runtime_pb2

from foundation.errors import Failure, invalid
from foundation.outcomes import MAY_HAVE_RUN_TEXT, NOT_RUN_TEXT
from services.ledger import notices
from services.ledger.lane import Answer, Call, Lane, Source, Turn

OPEN = turn_pb2.CALL_STATE_OPEN
ANSWERED = turn_pb2.CALL_STATE_ANSWERED
CLOSED = turn_pb2.CALL_STATE_CLOSED


def open_calls(lane: Lane) -> list[Call]:
    """The calls that clients must answer, in use order."""
    return [call for call in lane.calls if call.state == OPEN]


def announce(lane: Lane) -> None:
    """The session waits for the open calls."""
    waiting = tuple(call.use_event_id for call in open_calls(lane))
    notices.stopped(lane, session_events_pb2.STOP_REASON_TYPE_REQUIRES_ACTION, waiting)


def answer_result(lane: Lane, path: str, event: events_pb2.Event) -> int:
    """A custom tool result claims its call, and is its public result; the event's position."""
    use_id = event.user_custom_tool_result.custom_tool_use_id
    call = _answerable(lane, f"{path}.custom_tool_use_id", use_id)
    if not call.client_owned:
        raise _refused(
            f"{path}.custom_tool_use_id",
            f"{use_id} is not a custom tool call; answer it with user.tool_confirmation",
        )
    position = lane.publish(event)
    _claim(call, Answer.RESULT, event.id, position)
    call.answer_marked = True
    call.result_source, call.result_event_id = Source.CLIENT, event.id
    call.result_position = position
    return position


def attach_system(lane: Lane, path: str, use_id: str, event: events_pb2.Event) -> int:
    """A system message goes with the answer directly before it; the event's position."""
    call = next((call for call in lane.calls if call.use_event_id == use_id), None)
    if call is None:
        raise invalid(path, "the call answered before it is closed")
    call.system_event_id, call.system_position = event.id, lane.queue(event)
    return lane.position


def answer_confirmation(lane: Lane, path: str, event: events_pb2.Event) -> int:
    """A confirmation claims its call; it is marked when the turn resumes or the call is closed."""
    confirmation = event.user_tool_confirmation
    use_id = confirmation.tool_use_id
    call = _answerable(lane, f"{path}.tool_use_id", use_id)
    if call.client_owned:
        raise _refused(
            f"{path}.tool_use_id",
            f"{use_id} is a custom tool call; answer it with user.custom_tool_result",
        )
    allowed = confirmation.result == client_events_pb2.CONFIRMATION_RESULT_ALLOW
    position = lane.queue(event)
    _claim(call, Answer.ALLOW if allowed else Answer.DENY, event.id, position)
    return position


def close_actions(lane: Lane) -> None:
    """No open call can be answered any more; whoever owns the turn publishes their results."""
    for call in open_calls(lane):
        _close(lane, call)


def close_publicly(lane: Lane) -> None:
    """Every call without a public result gets an error result, now and here."""
    mark_handled(lane)
    for call in lane.calls:
        if call.result_source != Source.NONE:
            continue
        text = MAY_HAVE_RUN_TEXT if _may_have_run(lane.turns[0], call) else NOT_RUN_TEXT
        event = _error_result(call, lane.next_id(), text)
        call.result_source, call.result_event_id = Source.LEDGER, event.id
        call.result_position = lane.publish(event)
        _close(lane, call)


def mark_handled(lane: Lane) -> None:
    """Confirmations and system messages that waited for their turn take effect now."""
    marks: list[tuple[int, str, str]] = []
    for call in lane.calls:
        if call.answer != Answer.NONE and not call.answer_marked:
            call.answer_marked = True
            marks.append((call.answer_position or 0, call.answer_event_id or "", _CONFIRMATION))
        if call.system_event_id is not None and not call.system_marked:
            call.system_marked = True
            marks.append((call.system_position or 0, call.system_event_id, _SYSTEM))
    for position, event_id, event_type in sorted(marks):
        lane.mark(event_id, event_type, position)


_CONFIRMATION = "user.tool_confirmation"
_SYSTEM = "system.message"


def _answerable(lane: Lane, path: str, use_id: str) -> Call:
    if use_id.startswith("toolu_"):
        raise _refused(path, f"{use_id} is a provider's id; send the id of the use event")
    call = next((call for call in lane.calls if call.use_event_id == use_id), None)
    if call is None:
        raise _refused(
            path, f"{use_id} names no call that waits: unknown, or answered or closed before"
        )
    if call.state == ANSWERED:
        raise _refused(path, f"{use_id} was answered already")
    if call.state == CLOSED:
        raise _refused(path, f"{use_id} was closed by an interrupt")
    if call.state != OPEN:
        raise _refused(path, f"{use_id} waits for no answer")
    return call


def _claim(call: Call, answer: Answer, event_id: str, position: int) -> None:
    call.state, call.answer = ANSWERED, answer
    call.answer_event_id, call.answer_position = event_id, position


def _close(lane: Lane, call: Call) -> None:
    """The closure's log point is the newest entry, unless the call has an answer's."""
    call.state = CLOSED
    if call.answer == Answer.NONE and call.answer_position is None:
        call.answer_position = lane.position


def _may_have_run(turn: Turn, call: Call) -> bool:
    """Whether an owner may have started the call; nothing of a parked turn was."""
    if turn.state == turn_pb2.TURN_STATE_PARKED:
        return False
    if call.owner != runtime_pb2.TOOL_OWNER_PLATFORM_MANAGED:
        return False
    return not call.waits_for_client or call.answer == Answer.ALLOW


def _error_result(call: Call, id: str, text: str) -> events_pb2.Event:
    content = [content_pb2.ContentBlock(text=content_pb2.TextBlock(text=text))]
    if call.client_owned:
        custom = client_events_pb2.UserCustomToolResult(
            custom_tool_use_id=call.use_event_id, content=content, is_error=True
        )
        return events_pb2.Event(id=id, user_custom_tool_result=custom)
    result = agent_events_pb2.AgentToolResult(
        tool_use_id=call.use_event_id, content=content, is_error=True
    )
    return events_pb2.Event(id=id, agent_tool_result=result)


def _refused(path: str, message: str) -> Failure:
    return Failure(reasons.ERROR_REASON_ACTION_REFUSED, message, path=path)
