"""What clients send and runners publish, and the log in short."""

from typing import Any

from counterfoil.ledger.v1 import (
    agent_events_pb2,
    client_events_pb2,
    content_pb2,
    events_pb2,
    turn_pb2,
)
from counterfoil.types.v1 import runtime_pb2

from foundation import ids

CUSTOM = runtime_pb2.TOOL_OWNER_CLIENT_CUSTOM
PLATFORM = runtime_pb2.TOOL_OWNER_PLATFORM_MANAGED
ALLOW = runtime_pb2.TOOL_POLICY_ALWAYS_ALLOW
ASK = runtime_pb2.TOOL_POLICY_ALWAYS_ASK


def text_block(text: str) -> content_pb2.ContentBlock:
    return content_pb2.ContentBlock(text=content_pb2.TextBlock(text=text))


def message(text: str) -> client_events_pb2.ClientEvent:
    return client_events_pb2.ClientEvent(
        user_message=client_events_pb2.UserMessage(content=[text_block(text)])
    )


def system(text: str) -> client_events_pb2.ClientEvent:
    return client_events_pb2.ClientEvent(
        system_message=client_events_pb2.SystemMessage(content=[text_block(text)])
    )


def interrupt(thread_id: str | None = None) -> client_events_pb2.ClientEvent:
    return client_events_pb2.ClientEvent(
        user_interrupt=client_events_pb2.UserInterrupt(session_thread_id=thread_id)
    )


def custom_result(
    call: turn_pb2.RoundCall | str, text: str = "42"
) -> client_events_pb2.ClientEvent:
    use_id = call if isinstance(call, str) else call.use_event_id
    given = client_events_pb2.UserCustomToolResult(
        custom_tool_use_id=use_id, content=[text_block(text)]
    )
    return client_events_pb2.ClientEvent(user_custom_tool_result=given)


def confirm(
    call: turn_pb2.RoundCall | str, *, deny: str | None = None
) -> client_events_pb2.ClientEvent:
    use_id = call if isinstance(call, str) else call.use_event_id
    allow, refuse = (
        client_events_pb2.CONFIRMATION_RESULT_ALLOW,
        client_events_pb2.CONFIRMATION_RESULT_DENY,
    )
    given = client_events_pb2.UserToolConfirmation(
        tool_use_id=use_id, result=allow if deny is None else refuse, deny_message=deny
    )
    return client_events_pb2.ClientEvent(user_tool_confirmation=given)


def result(call: turn_pb2.RoundCall, text: str, is_error: bool) -> turn_pb2.CallResult:
    id_ = ids.derived("event", "result", call.operation_id)
    content = [text_block(text)]
    if call.owner == CUSTOM:
        custom = client_events_pb2.UserCustomToolResult(
            custom_tool_use_id=call.use_event_id, content=content, is_error=is_error
        )
        event = events_pb2.Event(id=id_, user_custom_tool_result=custom)
    else:
        given = agent_events_pb2.AgentToolResult(
            tool_use_id=call.use_event_id, content=content, is_error=is_error
        )
        event = events_pb2.Event(id=id_, agent_tool_result=given)
    return turn_pb2.CallResult(operation_id=call.operation_id, event=event)


def short(entry: dict[str, Any]) -> str:
    name = str(entry["type"])
    if entry["processed_at"] is None:
        return f"{name}?"
    if name == "session.status_idle":
        reason = entry["stop_reason"]
        waiting = len(reason.get("event_ids", ()))
        return f"{name} {reason['type']}" + (f" {waiting}" if waiting else "")
    return name


def use(call: turn_pb2.RoundCall) -> events_pb2.Event:
    if call.owner == CUSTOM:
        custom = agent_events_pb2.AgentCustomToolUse(name=call.name, input=b"{}")
        return events_pb2.Event(id=call.use_event_id, agent_custom_tool_use=custom)
    return events_pb2.Event(
        id=call.use_event_id,
        agent_tool_use=agent_events_pb2.AgentToolUse(name=call.name, input=b"{}"),
    )
