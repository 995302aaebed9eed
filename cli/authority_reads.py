"""What journal and context know, for operators: with the service key, of any workspace."""

import sys

from counterfoil.context.v1 import context_pb2, context_pb2_grpc
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
_SNAPSHOT_COLUMNS = {
    "id": "SNAPSHOT",
    "turn_id": "TURN",
    "round": "ROUND",
    "attempt": "ATTEMPT",
    "transcript_seq": "TRANSCRIPT",
    "request_bytes": "BYTES",
    "input_tokens_estimate": "TOKENS (ESTIMATE)",
}

_KINDS = enum_literals(journal_pb2.OperationKind.DESCRIPTOR)
_STATES = enum_literals(journal_pb2.OperationState.DESCRIPTOR)
_OWNERS = enum_literals(ToolOwner.DESCRIPTOR)


async def list_operations(
    settings: Settings, session_id: str, reader: str, purpose: str, form: Form
) -> None:
    """Prints the session's operations; the journal records who looked. Raises Failure, OSError."""
    thread = await _thread(settings, session_id)
    request = journal_pb2.InspectOperationsRequest(thread=thread, reader=reader, purpose=purpose)
    async with channel(settings, "journal", service_key(settings)) as journal:
        stub = journal_pb2_grpc.JournalServiceStub(journal.as_channel())
        found = (await stub.InspectOperations(request)).operations
    rows = [_operation(one, content=form is Form.JSON) for one in found]
    output.rows(form, rows, _OPERATION_COLUMNS, "Nothing was executed yet.")


async def list_snapshots(settings: Settings, session_id: str, form: Form) -> None:
    """Prints the session's snapshots. Raises Failure, OSError."""
    thread = await _thread(settings, session_id)
    async with channel(settings, "context", service_key(settings)) as context:
        stub = context_pb2_grpc.ContextServiceStub(context.as_channel())
        found = await stub.ListSnapshots(context_pb2.ListSnapshotsRequest(thread=thread))
    rows = [_snapshot(one) for one in found.snapshots]
    output.rows(form, rows, _SNAPSHOT_COLUMNS, "The model was not asked yet.")


async def show_snapshot(
    settings: Settings, snapshot_id: str, form: Form, *, whole_request: bool
) -> None:
    """Prints a snapshot, or its request. Raises Failure: CORRUPT when the digest differs."""
    async with channel(settings, "context", service_key(settings)) as context:
        stub = context_pb2_grpc.ContextServiceStub(context.as_channel())
        located = await stub.LocateSnapshot(
            context_pb2.LocateSnapshotRequest(snapshot_id=snapshot_id)
        )
        rebuilt = await stub.Rebuild(
            context_pb2.RebuildRequest(thread=located.thread, snapshot_id=snapshot_id)
        )
    if whole_request:
        sys.stdout.buffer.write(rebuilt.body)
        sys.stdout.buffer.flush()
        return
    where = {"session_id": located.thread.session_id, "thread_id": located.thread.thread_id}
    output.facts(form, {**_snapshot(rebuilt.snapshot), **where, "rebuilt": "the same bytes"})


async def _thread(settings: Settings, session_id: str) -> ThreadRef:
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


def _snapshot(snapshot: context_pb2.SnapshotSummary) -> Row:
    return {
        "id": snapshot.id,
        "turn_id": snapshot.turn_id,
        "round": snapshot.round,
        "attempt": f"{snapshot.attempt.epoch}.{snapshot.attempt.number}",
        "transcript_seq": snapshot.transcript_head.seq,
        "transcript_digest": snapshot.transcript_head.digest.hex(),
        "request_digest": snapshot.request_digest.hex(),
        "request_bytes": snapshot.request_bytes,
        "input_tokens_estimate": snapshot.input_tokens_estimate,
    }


def _time(set_: bool, value: Timestamp) -> str | None:
    return write_timestamp(value) if set_ else None
