"""Event types: those that we publish, and those that a history may be filtered by."""

from counterfoil.ledger.v1 import events_pb2
from counterfoil.types.v1 import annotations_pb2

SESSION_DELETED = "session.deleted"
TERMINATED = "session.status_terminated"
SPAN_START = "span.model_request_start"
SPAN_END = "span.model_request_end"
THREAD_IDLE = "session.thread_status_idle"

PUBLISHED = frozenset(
    field.GetOptions().Extensions[annotations_pb2.json_tag]
    for field in events_pb2.Event.DESCRIPTOR.oneofs_by_name["event"].fields
)
"""Types of the events that this version writes."""

_OTHERS = frozenset(
    {
        "agent.mcp_tool_result",
        "agent.mcp_tool_use",
        "agent.thread_context_compacted",
        "agent.thread_message_received",
        "agent.thread_message_sent",
        "session.status_rescheduled",
        "session.thread_created",
        "session.thread_status_rescheduled",
        "span.outcome_evaluation_end",
        "span.outcome_evaluation_ongoing",
        "span.outcome_evaluation_start",
        "user.define_outcome",
        "user.tool_result",
        "workflow_run.created",
        "workflow_run.error",
        "workflow_run.phase_ended",
        "workflow_run.phase_started",
        "workflow_run.status_ended",
        "workflow_run.status_idle",
        "workflow_run.status_running",
    }
)

FILTERS = (PUBLISHED | _OTHERS) - {SESSION_DELETED}
"""All types of the reference contract but the one that no history holds, ours or not yet."""
