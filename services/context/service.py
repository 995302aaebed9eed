"""gRPC in and out of the context authority."""

import os
from typing import TYPE_CHECKING, Any

from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.context.v1 import context_pb2_grpc
from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc
from counterfoil.transcript.v1 import transcript_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Head, ThreadRef

from foundation import ids
from foundation.errors import Failure, deleted, fenced, not_found, wrong_state
from foundation.rpc.context import current
from foundation.storage import Database, SealRing
from services.context import admission, recipe, store
from services.context.cache import Warm, WarmCache
from services.context.history import History
from services.context.materializer import request_tail
from services.context.prefixes import Prefixes
from services.context.recipe import Frame, Recipe, ThreadKey, thread_key

if TYPE_CHECKING:
    from foundation.bootstrap import Kernel

_PART_KEY_BYTES = 32


async def start(kernel: "Kernel") -> None:
    """Open the database and serve."""
    servicer = ContextServicer(
        await kernel.database("context"),
        kernel.ring,
        transcript_pb2_grpc.TranscriptServiceStub(kernel.channel("transcript")),
        journal_pb2_grpc.JournalServiceStub(kernel.channel("journal")),
    )
    kernel.register(context_pb2_grpc.add_ContextServiceServicer_to_server, servicer)


class ContextServicer(context_pb2_grpc.ContextServiceServicer):
    """Internal: requests and their snapshots."""

    def __init__(
        self,
        db: Database,
        ring: SealRing,
        transcript: transcript_pb2_grpc.TranscriptServiceStub,
        journal: journal_pb2_grpc.JournalServiceStub,
        cache: WarmCache | None = None,
    ) -> None:
        self._db = db
        self._ring = ring
        self._prefixes = Prefixes(db, ring)
        self._history = History(transcript, journal, self._prefixes)
        self._cache = WarmCache() if cache is None else cache
        self._part_keys: dict[str, bytes] = {}

    async def Fence(self, request: pb.FenceRequest, context: Any) -> pb.FenceResponse:
        key, epoch = thread_key(request.fence.thread), request.fence.epoch
        async with self._db.commit("context.fence") as c:
            admitted = await store.raise_fence(c, key, epoch)
            rows = await store.snapshots_of_turn(c, key, request.turn_id) if admitted else []
        if not admitted:
            raise await self._refusal(key, epoch)
        return pb.FenceResponse(snapshots=[recipe.summary(self._ring, key, row) for row in rows])

    async def PrepareRequest(
        self, request: pb.PrepareRequestRequest, context: Any
    ) -> pb.PrepareRequestResponse:
        thread = request.fence.thread
        key = thread_key(thread)
        with self._cache.loan(key) as loan:
            head = request.transcript_head
            known = {
                one.operation_id: journal_pb2.Projection(body=one.projection)
                for one in request.known_results
            }
            loan.back = await self._history.current(thread, head, loan.warm, known)
            response = await self._prepare(request, key, loan.back)
            self._prefixes.keep_soon(key, request.fence.epoch, loan.back)
            return response

    async def Rebuild(self, request: pb.RebuildRequest, context: Any) -> pb.RebuildResponse:
        key = thread_key(request.thread)
        row = await store.snapshot(self._db, key, request.snapshot_id)
        if row is None:
            raise not_found("snapshot", request.snapshot_id)
        await store.note_access(
            self._db, ids.new("access"), key, "rebuild", current().request_id, row["id"]
        )
        opened = recipe.open_row(self._ring, key, row)
        past = Head(seq=opened.head_seq, digest=opened.head_digest)
        warm = await self._history.past(request.thread, past)
        response = pb.RebuildResponse(snapshot=recipe.summary(self._ring, key, row))
        response.body = await self._built(key, row["id"], opened, warm)
        return response

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

    async def Tombstone(self, request: pb.TombstoneRequest, context: Any) -> pb.TombstoneResponse:
        key = thread_key(request.thread)
        async with self._db.commit("context.tombstone") as c:
            await store.raise_fence(c, key, store.EPOCH_INFINITE)
            await store.erase(c, key)
        self._cache.forget(key)
        return pb.TombstoneResponse()

    async def _prepare(
        self, request: pb.PrepareRequestRequest, key: ThreadKey, warm: Warm
    ) -> pb.PrepareRequestResponse:
        if warm.is_empty:
            raise wrong_state("there is no message that a request could hold")
        frame = warm.frame(request.runtime)
        limits = frame.limits
        body, digest = warm.request(frame.head, request_tail(stream=request.stream))
        tokens = admission.estimate(len(body))
        if not admission.fits(tokens, limits):
            refused = pb.Refusal(
                input_tokens_estimate=tokens,
                input_tokens_limit=limits.input_tokens_limit,
                window_tokens=limits.window_tokens,
            )
            return pb.PrepareRequestResponse(refused=refused)
        addresses = warm.stored or recipe.addresses_of(await self._part_key(key[0]), frame)
        made = Recipe(
            head_seq=warm.seq,
            head_digest=warm.digest,
            request_head=addresses[0],
            pins=addresses[1],
            stream=request.stream,
            input_tokens_estimate=tokens,
            input_tokens_limit=limits.input_tokens_limit,
            request_digest=digest,
            request_bytes=len(body),
        )
        id = recipe.snapshot_id(key, request.turn_id, request.round, request.attempt)
        if not await self._store(request, key, id, made, frame, warm):
            made = await self._stored(key, id, made)
            if made.request_digest != digest:
                # Made by an older version of ours, or with other arguments: the first one counts.
                body = await self._built(key, id, made, warm)
        response = pb.PrepareRequestResponse()
        response.prepared.snapshot.CopyFrom(
            recipe.summary_of(made, id, request.turn_id, request.round, request.attempt)
        )
        response.prepared.body = body
        response.prepared.betas.extend(frame.betas)
        return response

    async def _store(
        self,
        request: pb.PrepareRequestRequest,
        key: ThreadKey,
        id: str,
        made: Recipe,
        frame: Frame,
        warm: Warm,
    ) -> bool:
        """Store the snapshot in one commit; False when the attempt has one already."""
        epoch, attempt = request.fence.epoch, request.attempt
        bound = recipe.identity(key, id, request.turn_id, request.round, attempt)
        row = store.NewSnapshot(
            *key,
            epoch,
            id,
            request.turn_id,
            request.round,
            attempt.epoch,
            attempt.number,
            self._ring.seal(recipe.encode(made), *bound),
            [made.request_head, made.pins],
        )
        if warm.stored:
            found = await store.put_snapshot(self._db, row)
            if not found["admitted"]:
                raise await self._refusal(key, epoch)
            if found["complete"]:
                stored: bool = found["stored"]
                return stored
        sealed = [
            self._ring.seal(body, *_part_identity(key[0], address))
            for address, body in zip(row.addresses, frame.parts, strict=True)
        ]
        found = await store.put_snapshot_with_parts(self._db, row, sealed)
        if not found["admitted"]:
            raise await self._refusal(key, epoch)
        warm.stored = (made.request_head, made.pins)
        created: bool = found["stored"]
        return created

    async def _stored(self, key: ThreadKey, id: str, made: Recipe) -> Recipe:
        """The attempt's stored recipe, which is never replaced and must be of the same head."""
        row = await store.snapshot(self._db, key, id)
        if row is None:
            raise deleted(key[2])
        stored = recipe.open_row(self._ring, key, row)
        if (stored.head_seq, stored.head_digest) != (made.head_seq, made.head_digest):
            raise Failure(
                reasons.ERROR_REASON_HEAD_MISMATCH,
                f"the attempt has a snapshot of transcript head {stored.head_seq}",
                metadata={"seq": str(stored.head_seq)},
            )
        return stored

    async def _built(self, key: ThreadKey, id: str, stored: Recipe, warm: Warm) -> bytes:
        """The bytes of a stored recipe, from history at its head. Raises CORRUPT."""
        head = await self._part(key, stored.request_head)
        body, digest = warm.request(head, request_tail(stream=stored.stream))
        if digest != stored.request_digest:
            raise Failure(reasons.ERROR_REASON_CORRUPT, f"snapshot {id} does not match its digest")
        return body

    async def _refusal(self, key: ThreadKey, epoch: int) -> Failure:
        epoch_max = await store.epoch_max(self._db, key)
        return deleted(key[2]) if epoch_max == store.EPOCH_INFINITE else fenced(epoch, epoch_max)

    async def _part_key(self, workspace_id: str) -> bytes:
        """The key of a workspace's part addresses, created on first use."""
        if workspace_id not in self._part_keys:
            bound = ("context.part_keys", "key_sealed", workspace_id)
            sealed = await store.part_key(self._db, workspace_id)
            if sealed is None:
                offered = self._ring.seal(os.urandom(_PART_KEY_BYTES), *bound)
                await store.offer_part_key(self._db, workspace_id, offered)
                sealed = await store.part_key(self._db, workspace_id)
                assert sealed is not None
            self._part_keys[workspace_id] = self._ring.open(sealed, *bound)
        return self._part_keys[workspace_id]

    async def _part(self, key: ThreadKey, address: bytes) -> bytes:
        found = await store.parts(self._db, key[0], [address])
        if address not in found:
            raise Failure(reasons.ERROR_REASON_CORRUPT, "a part of the snapshot is missing")
        return self._ring.open(found[address], *_part_identity(key[0], address))


def _part_identity(workspace_id: str, address: bytes) -> tuple[str, ...]:
    return ("context.parts", "body_sealed", workspace_id, address.hex())
