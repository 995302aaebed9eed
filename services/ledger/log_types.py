"""Event types by name, and those that a history may be filtered by."""

from counterfoil.ledger.v1 import events_pb2
from counterfoil.types.v1 import annotations_pb2

SESSION_DELETED = "session.deleted"
TERMINATED = "session.status_terminated"
SPAN_START = "span.model_request_start"
SPAN_END = "span.model_request_end"
THREAD_IDLE = "session.thread_status_idle"

_ALL = frozenset(
    field.GetOptions().Extensions[annotations_pb2.json_tag]
    for field in events_pb2.Event.DESCRIPTOR.oneofs_by_name["event"].fields
)

FILTERS = _ALL - {SESSION_DELETED}
"""All types of the contract but the one that no history holds."""
