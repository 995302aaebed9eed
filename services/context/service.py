"""gRPC in and out of the context authority."""

from typing import TYPE_CHECKING, Any

from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.context.v1 import context_pb2_grpc, snapshots_pb2_grpc
from counterfoil.files.v1 import artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2_grpc
from counterfoil.ledger.v1 import turn_pb2_grpc
from counterfoil.transcript.v1 import transcript_pb2_grpc
from counterfoil.types.v1.reference_pb2 import ThreadRef

from foundation import ids
from foundation.errors import not_found, wrong_state
from foundation.rpc.context import current
from foundation.storage import Database, SealRing
from services.context import export_service, loss_store, recipe, store
from services.context.breaks import Breaks
from services.context.cache import WarmCache
from services.context.copying import Copier
from services.context.history import History
from services.context.prefixes import Prefixes
from services.context.preparing import Preparer
from services.context.public_service import ContextSnapshotServicer
from services.context.reading import Reading
from services.context.recipe import thread_key
from services.context.records import Records
from services.context.redacting import Redactor
from services.context.rewriting import Rewriting
from services.context.shrinking import Mode, Shrinker
from services.context.snapshots import Snapshots
from services.context.verification import Stored, Verifier

if TYPE_CHECKING:
    from foundation.bootstrap import Kernel


async def start(kernel: "Kernel") -> None:
    """Open the database and serve."""
    servicer = ContextServicer(
        await kernel.database("context"),
        kernel.ring,
        transcript_pb2_grpc.TranscriptServiceStub(kernel.channel("transcript")),
        journal_pb2_grpc.JournalServiceStub(kernel.channel("journal")),
        artifacts_pb2_grpc.ArtifactServiceStub(kernel.channel("files")),
        summary_mode=kernel.settings.context_summary,
    )
    kernel.register(context_pb2_grpc.add_ContextServiceServicer_to_server, servicer)
    export_service.register(kernel, await kernel.database("context"), servicer.snapshots)
    turns = turn_pb2_grpc.TurnServiceStub(kernel.channel("ledger"))
    kernel.register(
        snapshots_pb2_grpc.add_ContextSnapshotServiceServicer_to_server,
        ContextSnapshotServicer(servicer.reading, turns),
    )


class ContextServicer(context_pb2_grpc.ContextServiceServicer):
    """Internal: requests and their snapshots."""

    def __init__(
        self,
        db: Database,
        ring: SealRing,
        transcript: transcript_pb2_grpc.TranscriptServiceStub,
        journal: journal_pb2_grpc.JournalServiceStub,
        artifacts: artifacts_pb2_grpc.ArtifactServiceStub,
        cache: WarmCache | None = None,
        summary_mode: Mode = "extractive",
    ) -> None:
        self._db = db
        self._ring = ring
        self._prefixes = Prefixes(db, ring)
        self._cache = WarmCache() if cache is None else cache
        self.snapshots = Snapshots(db, ring)
        records, rewriting = Records(db, ring), Rewriting(transcript)
        history = History(transcript, journal, artifacts, self._prefixes)
        self._copier = Copier(history, records, self.snapshots)
        self._redactor = Redactor(db, ring, history)
        self._preparer = Preparer(
            history,
            records,
            self.snapshots,
            Shrinker(records, summary_mode),
            self._redactor,
            Breaks(db, ring, rewriting),
        )
        recorded = Stored(db, records, self.snapshots, self._redactor)
        self._verifier = Verifier(ring, history, recorded)
        self.reading = Reading(db, ring, rewriting, journal, self._rebuilt, self._redactor.since)

    async def Fence(self, request: pb.FenceRequest, context: Any) -> pb.FenceResponse:
        key, epoch = thread_key(request.fence.thread), request.fence.epoch
        async with self._db.commit("context.fence") as c:
            admitted = await store.raise_fence(c, key, epoch)
            rows = await store.snapshots_of_turn(c, key, request.turn_id) if admitted else []
        if not admitted:
            await self.snapshots.admit(key, epoch)
        return pb.FenceResponse(snapshots=[recipe.summary(self._ring, key, row) for row in rows])

    async def PrepareRequest(
        self, request: pb.PrepareRequestRequest, context: Any
    ) -> pb.PrepareRequestResponse:
        key = thread_key(request.fence.thread)
        with self._cache.loan(key) as loan:
            response = await self._preparer.prepare(request, key, loan)
            if loan.back is not None:
                self._prefixes.keep_soon(key, request.fence.epoch, loan.back)
            return response

    async def Rebuild(self, request: pb.RebuildRequest, context: Any) -> pb.RebuildResponse:
        return await self._rebuilt(request.thread, request.snapshot_id, "rebuild")

    async def LocateSnapshot(
        self, request: pb.LocateSnapshotRequest, context: Any
    ) -> pb.LocateSnapshotResponse:
        key = await store.home_of_snapshot(self._db, request.snapshot_id)
        if key is None:
            raise not_found("snapshot", request.snapshot_id)
        workspace_id, session_id, thread_id = key
        thread = ThreadRef(workspace_id=workspace_id, session_id=session_id, thread_id=thread_id)
        return pb.LocateSnapshotResponse(thread=thread)

    async def ListSnapshots(
        self, request: pb.ListSnapshotsRequest, context: Any
    ) -> pb.ListSnapshotsResponse:
        key = thread_key(request.thread)
        rows = await store.snapshots(self._db, key)
        return pb.ListSnapshotsResponse(
            snapshots=[recipe.summary(self._ring, key, row) for row in rows]
        )

    async def InspectSnapshots(
        self, request: pb.InspectSnapshotsRequest, context: Any
    ) -> pb.InspectSnapshotsResponse:
        page = await self.reading.page(request.thread, request)
        next_page = page.next_page if page.HasField("next_page") else None
        return pb.InspectSnapshotsResponse(data=page.data, next_page=next_page)

    async def InspectSnapshot(
        self, request: pb.InspectSnapshotRequest, context: Any
    ) -> pb.InspectSnapshotResponse:
        snapshot = await self.reading.one(request.thread, request.snapshot_id)
        return pb.InspectSnapshotResponse(snapshot=snapshot)

    async def DiffSnapshots(
        self, request: pb.DiffSnapshotsRequest, context: Any
    ) -> pb.DiffSnapshotsResponse:
        ids = request.snapshot_id, request.other_snapshot_id
        return pb.DiffSnapshotsResponse(diff=await self.reading.difference(request.thread, *ids))

    async def CopyThread(
        self, request: pb.CopyThreadRequest, context: Any
    ) -> pb.CopyThreadResponse:
        await self._copier.copy(request)
        return pb.CopyThreadResponse()

    async def Redact(self, request: pb.RedactRequest, context: Any) -> pb.RedactResponse:
        response = await self._redactor.redact(request)
        self._cache.forget(thread_key(request.thread))
        return response

    async def VerifyContext(
        self, request: pb.VerifyContextRequest, context: Any
    ) -> pb.VerifyContextResponse:
        key = thread_key(request.thread)
        await store.note_access(
            self._db, ids.new("access"), key, "verify", current().request_id, ""
        )
        return await self._verifier.verify(request.thread, requests=request.requests)

    async def Tombstone(self, request: pb.TombstoneRequest, context: Any) -> pb.TombstoneResponse:
        key = thread_key(request.thread)
        async with self._db.commit("context.tombstone") as c:
            await store.raise_fence(c, key, store.EPOCH_INFINITE)
            await store.erase(c, key)
            await loss_store.erase(c, key)
        self._cache.forget(key)
        return pb.TombstoneResponse()

    async def _rebuilt(
        self, thread: ThreadRef, snapshot_id: str, action: str
    ) -> pb.RebuildResponse:
        """A snapshot's request; the access record says for what. Raises NOT_FOUND, CORRUPT, and
        WRONG_STATE when it may have held what was redacted since."""
        key = thread_key(thread)
        row = await store.snapshot(self._db, key, snapshot_id)
        if row is None:
            raise not_found("snapshot", snapshot_id)
        await store.note_access(
            self._db, ids.new("access"), key, action, current().request_id, row["id"]
        )
        opened = recipe.open_row(self._ring, key, row)
        if await self._redactor.since(key, opened.losses_version, opened.head_seq):
            raise wrong_state(f"snapshot {row['id']} held something that was redacted since")
        response = pb.RebuildResponse(snapshot=recipe.summary(self._ring, key, row))
        response.body = await self._preparer.rebuilt(thread, key, row["id"], opened)
        return response
