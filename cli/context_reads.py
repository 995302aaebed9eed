"""What the context authority knows, for operators: with the service key, of any workspace."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from counterfoil.context.v1 import context_pb2, context_pb2_grpc, snapshots_pb2
from google.protobuf.message import Message

from cli import output
from cli.authority_reads import thread_of
from cli.operator import channel, service_key
from cli.output import Form, Row
from foundation.json import encode, parse
from foundation.settings import Settings

_PAGE_MAX = 100
_COLUMNS = {
    "id": "SNAPSHOT",
    "turn_id": "TURN",
    "round": "ROUND",
    "purpose": "PURPOSE",
    "outcome": "OUTCOME",
    "model": "MODEL",
    "input_tokens": "TOKENS",
    "request_bytes": "BYTES",
    "history_change": "HISTORY",
    "created_at": "MADE",
}


@dataclass(frozen=True)
class Wanted:
    """Which snapshots of a session."""

    session_id: str
    newest: bool
    limit: int


async def list_snapshots(settings: Settings, wanted: Wanted, form: Form) -> None:
    """Prints a session's snapshots. Raises Failure, OSError."""
    thread = await thread_of(settings, wanted.session_id)
    request = context_pb2.InspectSnapshotsRequest(
        thread=thread,
        order=(
            snapshots_pb2.SNAPSHOT_ORDER_DESC if wanted.newest else snapshots_pb2.SNAPSHOT_ORDER_ASC
        ),
    )
    rows: list[Row] = []
    async with _context(settings) as stub:
        while len(rows) < wanted.limit:
            request.limit = min(_PAGE_MAX, wanted.limit - len(rows))
            page = await stub.InspectSnapshots(request)
            rows += map(_row, page.data)
            if not page.HasField("next_page"):
                break
            request.page = page.next_page
    output.rows(form, rows, _COLUMNS, "The model was not asked yet.")


async def show_snapshot(
    settings: Settings, snapshot_id: str, form: Form, *, whole_request: bool
) -> None:
    """Prints a snapshot, or its request. Raises Failure: CORRUPT when the digest differs."""
    async with _context(settings) as stub:
        located = await stub.LocateSnapshot(
            context_pb2.LocateSnapshotRequest(snapshot_id=snapshot_id)
        )
        thread = located.thread
        rebuilt = await stub.Rebuild(
            context_pb2.RebuildRequest(thread=thread, snapshot_id=snapshot_id)
        )
        if whole_request:
            sys.stdout.buffer.write(rebuilt.body)
            sys.stdout.buffer.flush()
            return
        found = await stub.InspectSnapshot(
            context_pb2.InspectSnapshotRequest(thread=thread, snapshot_id=snapshot_id)
        )
    row = {**_row(found.snapshot), "session_id": thread.session_id}
    if form is Form.TABLE:  # a line for each member
        del row["recipe"]
        row |= _row(found.snapshot.recipe)
    output.facts(form, {**row, "rebuilt": "the same bytes"})


async def diff_snapshots(settings: Settings, id: str, other_id: str, form: Form) -> None:
    """Prints where two requests differ first, and why. Raises Failure, OSError."""
    async with _context(settings) as stub:
        located = await stub.LocateSnapshot(context_pb2.LocateSnapshotRequest(snapshot_id=id))
        request = context_pb2.DiffSnapshotsRequest(
            thread=located.thread, snapshot_id=id, other_snapshot_id=other_id
        )
        found = await stub.DiffSnapshots(request)
    output.facts(form, _row(found.diff))


@asynccontextmanager
async def _context(
    settings: Settings,
) -> AsyncGenerator[context_pb2_grpc.ContextServiceStub]:
    async with channel(settings, "context", service_key(settings)) as context:
        yield context_pb2_grpc.ContextServiceStub(context.as_channel())


def _row(message: Message) -> dict[str, object]:
    return parse(encode(message))
