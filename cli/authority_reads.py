"""What the journal knows, for operators: with the service key, of any workspace."""

from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc
from counterfoil.ledger.v1 import turn_pb2, turn_pb2_grpc
from counterfoil.types.v1.reference_pb2 import ThreadRef
from counterfoil.types.v1.runtime_pb2 import ToolOwner
from google.protobuf.timestamp_pb2 import Timestamp

from cli import output
from cli.operator import channel, service_key
from cli.output import Form, Row
from foundation.json import enum_literals, parse, write_timestamp
from foundation.settings import Settings

_OPERATION_COLUMNS = {
    "id": "OPERATION",
    "kind": "KIND",
    "state": "STATE",
    "tool_name": "TOOL",
    "owner": "OWNER",
    "turn_id": "TURN",
    "round": "ROUND",
    "started_at": "STARTED",
    "snapshot_id": "SNAPSHOT",
}

_KINDS = enum_literals(journal_pb2.OperationKind.DESCRIPTOR)
_STATES = enum_literals(journal_pb2.OperationState.DESCRIPTOR)
_OWNERS = enum_literals(ToolOwner.DESCRIPTOR)


async def list_operations(
    settings: Settings, session_id: str, reader: str, purpose: str, form: Form
) -> None:
    """Prints the session's operations; the journal records who looked. Raises Failure, OSError."""
    thread = await thread_of(settings, session_id)
    request = journal_pb2.InspectOperationsRequest(thread=thread, reader=reader, purpose=purpose)
    async with channel(settings, "journal", service_key(settings)) as journal:
        stub = journal_pb2_grpc.JournalServiceStub(journal.as_channel())
        found = (await stub.InspectOperations(request)).operations
    rows = [_operation(one, content=form is Form.JSON) for one in found]
    output.rows(form, rows, _OPERATION_COLUMNS, "Nothing was executed yet.")


async def thread_of(settings: Settings, session_id: str) -> ThreadRef:
    """A session's primary thread, in any workspace. Raises Failure, OSError."""
    async with channel(settings, "ledger", service_key(settings)) as ledger:
        stub = turn_pb2_grpc.TurnServiceStub(ledger.as_channel())
        found = await stub.LocateThread(turn_pb2.LocateThreadRequest(session_id=session_id))
    return found.thread


def _operation(operation: journal_pb2.Operation, *, content: bool) -> Row:
    row = {
        "id": operation.id,
        "kind": _KINDS.get(operation.kind),
        "state": _STATES.get(operation.state),
        "tool_name": operation.tool_name or None,
        "tool_version": operation.tool_version or None,
        "owner": _OWNERS.get(operation.owner),
        "turn_id": operation.turn_id,
        "round": operation.round,
        "attempt": f"{operation.attempt.epoch}.{operation.attempt.number}",
        "block_index": operation.block_index if operation.block_index >= 0 else None,
        "started_at": _time(operation.HasField("started_at"), operation.started_at),
        "deadline_at": _time(operation.HasField("deadline_at"), operation.deadline_at),
        "snapshot_id": operation.snapshot_id or None,
        "has_late_outcome": operation.has_late_outcome,
    }
    if content:
        body = operation.projection.body
        row["projection"] = parse(body) if body else None
    return row


def _time(set_: bool, value: Timestamp) -> str | None:
    return write_timestamp(value) if set_ else None
