"""What is told of snapshots: lists, recipes, requests, differences."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from counterfoil.context.v1 import context_pb2
from counterfoil.context.v1 import snapshots_pb2 as pb
from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc
from counterfoil.types.v1.reference_pb2 import Attempt, Head, ThreadRef

from foundation import cursors
from foundation.errors import not_found
from foundation.operations import model_operation, summary_operation
from foundation.storage import Database, Record, SealRing
from services.context import diff, page_store, recipe, shown
from services.context.materializer import request_tail
from services.context.parts import Parts
from services.context.recipe import Pins, Recipe, ThreadKey, thread_key
from services.context.rewriting import Rewriting

Rebuild = Callable[[ThreadRef, str, str], Awaitable[context_pb2.RebuildResponse]]
"""Makes a thread's snapshot again and notes who asked: thread, snapshot, action."""

Redacted = Callable[[ThreadKey, int, int], Awaitable[bool]]
"""Whether something was redacted since: thread, version of its losses, last entry."""

Page = pb.ListContextSnapshotsRequest | context_pb2.InspectSnapshotsRequest
"""Which page; who asked named the thread."""

_LIMIT_DEFAULT = 20


class Reading:
    """Reads the snapshots of one database. A thread is named whole, so that no reader sees one of
    another workspace."""

    def __init__(
        self,
        db: Database,
        ring: SealRing,
        rewriting: Rewriting,
        journal: journal_pb2_grpc.JournalServiceStub,
        rebuild: Rebuild,
        redacted: Redacted,
    ) -> None:
        self._redacted = redacted
        self._db = db
        self._ring = ring
        self._rewriting = rewriting
        self._journal = journal
        self._rebuild = rebuild
        self._parts = Parts(db, ring)

    async def page(self, thread: ThreadRef, request: Page) -> pb.ListContextSnapshotsResponse:
        """A page of the thread's snapshots. Raises INVALID_FIELD."""
        key = thread_key(thread)
        descending = request.order == pb.SNAPSHOT_ORDER_DESC
        identity = ("context.snapshot_cursor", *key, "desc" if descending else "asc")
        behind = None
        if request.HasField("page"):
            must = "the next_page of this list, with the same order"
            (behind,) = cursors.read(self._ring, tuple[int], request.page, must, *identity)
        limit = request.limit if request.HasField("limit") else _LIMIT_DEFAULT
        rows = await page_store.page(self._db, key, behind, limit + 1, descending=descending)
        response = pb.ListContextSnapshotsResponse(data=await self._shown(thread, rows[:limit]))
        if len(rows) > limit:
            last = (rows[limit - 1]["ordinal"],)
            response.next_page = cursors.write(self._ring, last, *identity)
        return response

    async def one(self, thread: ThreadRef, id: str) -> pb.ContextSnapshot:
        """A snapshot with its recipe. Raises NOT_FOUND."""
        key = thread_key(thread)
        row = await self._row(key, id)
        made = recipe.open_row(self._ring, key, row)
        pins = (await self._pins(key[0], [made]))[made.pins]
        covered = await page_store.covered_through(self._db, key, made.checkpoint_id)
        (found,) = await self._shown(thread, [row])
        found.recipe.CopyFrom(shown.recipe(made, pins, covered))
        return found

    async def request(self, thread: ThreadRef, id: str) -> bytes:
        """A snapshot's request. Raises NOT_FOUND, CORRUPT."""
        return (await self._rebuild(thread, id, "request")).body

    async def difference(self, thread: ThreadRef, id: str, other_id: str) -> pb.ContextSnapshotDiff:
        """Where the requests of two snapshots differ first. Where one was redacted, what was
        recorded of both decides. Raises NOT_FOUND, CORRUPT."""
        parts, made, head = await self._taken_apart(thread, id)
        other_parts, other_made, other_head = await self._taken_apart(thread, other_id)
        is_whole = bool(parts.body and other_parts.body)
        if not is_whole:
            parts, other_parts = map(diff.without_messages, (parts, other_parts))
        found = diff.compare(parts, other_parts)
        compared = diff.change(found, made, other_made)
        cause = compared if is_whole else diff.cause_of(made, other_made)
        is_open = cause == pb.CONTEXT_CHANGE_BUG
        if is_open and await self._rewriting.is_between(thread, head.seq, other_head.seq):
            cause = pb.CONTEXT_CHANGE_WITHHELD
        elif is_open and not is_whole:
            cause = pb.CONTEXT_CHANGE_APPENDED
        return shown.difference(id, other_id, found, cause, parts, other_parts)

    async def _row(self, key: ThreadKey, id: str) -> Record:
        row = await page_store.get(self._db, key, id)
        if row is None:
            raise not_found("snapshot", id[:80])
        return row

    async def _shown(self, thread: ThreadRef, rows: Sequence[Record]) -> list[pb.ContextSnapshot]:
        if not rows:
            return []
        key = thread_key(thread)
        recipes = [recipe.open_row(self._ring, key, row) for row in rows]
        pins = await self._pins(key[0], recipes)
        calls = [_operation_id(row, made) for row, made in zip(rows, recipes, strict=True)]
        operations = await self._operations(thread, calls)
        return [
            shown.snapshot(key, row, made, pins[made.pins].model, operations.get(call))
            for row, made, call in zip(rows, recipes, calls, strict=True)
        ]

    async def _pins(self, workspace_id: str, recipes: Iterable[Recipe]) -> Mapping[bytes, Pins]:
        found = await self._parts.open(workspace_id, [one.pins for one in recipes])
        return {address: recipe.read_pins(body) for address, body in found.items()}

    async def _operations(
        self, thread: ThreadRef, ids: Sequence[str]
    ) -> Mapping[str, journal_pb2.Operation]:
        """Provider calls, as far as they were started, by id."""
        request = journal_pb2.GetOperationsRequest(thread=thread, operation_ids=ids)
        response = await self._journal.GetOperations(request)
        return {one.id: one for one in response.operations}

    async def _taken_apart(self, thread: ThreadRef, id: str) -> tuple[diff.Parts, diff.Made, Head]:
        """A request's parts (without messages where it was redacted), and what was recorded."""
        key = thread_key(thread)
        row = await self._row(key, id)
        made, summary = recipe.open_row(self._ring, key, row), recipe.summary(self._ring, key, row)
        pins = (await self._pins(key[0], [made]))[made.pins]
        if await self._redacted(key, made.losses_version, made.head_seq):
            head = await self._parts.one(key[0], made.request_head)
            frame = head + request_tail(stream=made.stream)
            parts = diff.without_messages(diff.take_apart(frame))
        else:
            parts = diff.take_apart((await self._rebuild(thread, id, "diff")).body)
        transitions = summary.transition_head
        recorded = diff.made_of(
            parts,
            (*pins.profile, pins.materializer),
            checkpoint_id=summary.checkpoint_id,
            transition_head=(transitions.seq, transitions.digest),
            purpose=made.purpose,
        )
        return parts, recorded, summary.transcript_head


def _operation_id(row: Record, made: Recipe) -> str:
    attempt = Attempt(epoch=row["attempt_epoch"], number=row["attempt_number"])
    if made.plan_id:
        return summary_operation(row["turn_id"], row["round"], attempt, made.plan_id)
    return model_operation(row["turn_id"], row["round"], attempt)
