"""gRPC in and out of the files authority."""

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

from counterfoil.files.v1 import artifacts_pb2 as pb
from counterfoil.files.v1 import artifacts_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import ids
from foundation.artifacts import artifact_id
from foundation.errors import Failure, not_found
from foundation.storage import Database, Record
from services.files import export_service, store, sweep_store
from services.files.store import NewArtifact, SessionKey
from services.files.vault import Vault

if TYPE_CHECKING:
    from foundation.bootstrap import Kernel

_PAGE = 1000
_REMOVED_AT_ONCE = 1000


async def start(kernel: "Kernel") -> None:
    """Open the database and serve; the object store is asked when somebody needs it."""
    db = await kernel.database("files")
    vault = Vault(db, kernel.ring, kernel.objects)
    servicer = ArtifactServicer(db, vault)
    kernel.register(artifacts_pb2_grpc.add_ArtifactServiceServicer_to_server, servicer)
    export_service.register(kernel, db, vault, servicer)


class ArtifactServicer(artifacts_pb2_grpc.ArtifactServiceServicer):
    """Internal: rows before bytes, always, so that a crash leaves bytes too many and none too
    few."""

    def __init__(self, db: Database, vault: Vault) -> None:
        self._db = db
        self._vault = vault

    async def StageArtifact(
        self, request: pb.StageArtifactRequest, context: Any
    ) -> pb.StageArtifactResponse:
        key = (request.workspace_id, request.session_id)
        sha256 = await asyncio.to_thread(_digest, request.body)
        id = artifact_id(request.workspace_id, sha256, request.media_type, request.role)
        size = len(request.body)
        new = NewArtifact(sha256, request.media_type, size, request.role, request.operation_id)
        taken = await self._take(key, id, new)
        if not taken.is_stored:
            await self._vault.put(key[0], taken.blob_id, request.body)
            if not await store.note_stored(self._db, key, id, taken.blob_id):
                raise await self._gone(key)
        artifact = pb.Artifact(
            id=id, media_type=new.media_type, size_bytes=size, sha256=sha256, role=request.role
        )
        return pb.StageArtifactResponse(artifact=artifact)

    async def ReadArtifact(
        self, request: pb.ReadArtifactRequest, context: Any
    ) -> pb.ReadArtifactResponse:
        key = (request.workspace_id, request.session_id)
        row = await store.get(self._db, key, request.artifact_id)
        if row is None:
            raise not_found("artifact", request.artifact_id)
        try:
            body = await self._vault.get(key[0], row["blob_id"], row["sha256"])
        except Failure:
            # Its bytes may have gone with it while we asked for them.
            if await store.get(self._db, key, request.artifact_id) is None:
                raise not_found("artifact", request.artifact_id) from None
            raise
        return pb.ReadArtifactResponse(artifact=_artifact(row), body=body)

    async def CopyArtifacts(
        self, request: pb.CopyArtifactsRequest, context: Any
    ) -> pb.CopyArtifactsResponse:
        source = (request.workspace_id, request.source_session_id)
        target = (request.workspace_id, request.target_session_id)
        async with self._db.commit("files.copy") as c:
            if not await store.admit(c, target):
                raise _deleted(target)
            copied = await store.copy(c, source, target, request.artifact_ids)
            if copied != len(request.artifact_ids):
                missing = len(request.artifact_ids) - copied
                raise not_found("artifact", f"{missing} of session {source[1]}")
        return pb.CopyArtifactsResponse()

    async def ListArtifacts(
        self, request: pb.ListArtifactsRequest, context: Any
    ) -> pb.ListArtifactsResponse:
        key = (request.workspace_id, request.session_id)
        rows = await store.artifacts(self._db, key, request.artifact_id_after, _PAGE + 1)
        owned = [
            pb.OwnedArtifact(
                artifact=_artifact(row),
                state=row["state"],
                operation_id=row["operation_id"],
                staged_at=row["staged_at"],
            )
            for row in rows[:_PAGE]
        ]
        return pb.ListArtifactsResponse(artifacts=owned, has_more=len(rows) > _PAGE)

    async def ListDueSessions(
        self, request: pb.ListDueSessionsRequest, context: Any
    ) -> pb.ListDueSessionsResponse:
        after = (request.after.workspace_id, request.after.session_id)
        rows = await sweep_store.due(self._db, request.grace_ms, after, request.limit)
        return pb.ListDueSessionsResponse(
            owners=[
                pb.ArtifactOwner(workspace_id=row["workspace_id"], session_id=row["session_id"])
                for row in rows
            ]
        )

    async def CondemnArtifacts(
        self, request: pb.CondemnArtifactsRequest, context: Any
    ) -> pb.CondemnArtifactsResponse:
        key = (request.workspace_id, request.session_id)
        async with self._db.commit("files.condemn") as c:
            condemned = await sweep_store.condemn(c, key, request.artifact_ids, request.grace_ms)
        return pb.CondemnArtifactsResponse(condemned=condemned)

    async def SweepArtifacts(
        self, request: pb.SweepArtifactsRequest, context: Any
    ) -> pb.SweepArtifactsResponse:
        key = (request.workspace_id, request.session_id)
        async with self._db.commit("files.sweep") as c:
            deleted = await sweep_store.sweep(c, key, request.artifact_ids, request.grace_ms)
        removed = await self._remove_given_up(key[0])
        return pb.SweepArtifactsResponse(deleted=deleted, objects_removed=removed)

    async def SweepBytes(
        self, request: pb.SweepBytesRequest, context: Any
    ) -> pb.SweepBytesResponse:
        if not request.after:
            for workspace_id in await sweep_store.workspaces_to_clear(self._db):
                await self._remove_given_up(workspace_id)
        page = await self._vault.inventory(request.after, request.limit)
        # The rows are read after the list: an object whose row is not there now never gets one.
        known = await sweep_store.known(self._db, list(page.values()))
        orphans = [blob for blob in page.values() if blob not in known]
        for workspace_id, blob_id in orphans:
            await self._vault.remove(workspace_id, blob_id)
            await store.forget_blob(self._db, workspace_id, blob_id)
        last = next(reversed(page), "") if len(page) == request.limit else ""
        return pb.SweepBytesResponse(looked_at=len(page), removed=len(orphans), next=last)

    async def Tombstone(self, request: pb.TombstoneRequest, context: Any) -> pb.TombstoneResponse:
        key = (request.workspace_id, request.session_id)
        async with self._db.commit("files.tombstone") as c:
            await store.erase(c, key)
        await self._remove_given_up(key[0])
        return pb.TombstoneResponse()

    async def _take(self, key: SessionKey, id: str, new: NewArtifact) -> store.Taken:
        address = await self._vault.address_of(key[0], new.sha256)
        async with self._db.commit("files.stage") as c:
            if not await store.admit(c, key):
                raise _deleted(key)
            taken = await store.take_blob(c, key[0], ids.new("blob"), address, new.size_bytes)
            live, staged = pb.ARTIFACT_STATE_LIVE, pb.ARTIFACT_STATE_STAGED
            state = live if taken.is_stored else staged
            await store.stage(c, key, id, taken.blob_id, new, state)
        return taken

    async def _gone(self, key: SessionKey) -> Failure:
        if await store.is_deleted(self._db, key):
            return _deleted(key)
        return Failure(reasons.ERROR_REASON_UNAVAILABLE, "the artifact was collected meanwhile")

    async def _remove_given_up(self, workspace_id: str) -> int:
        """Remove the objects of blobs that were given up, by whomever; how many."""
        removed = 0
        while blobs := await store.given_up(self._db, workspace_id, _REMOVED_AT_ONCE):
            for blob_id in blobs:
                await self._vault.remove(workspace_id, blob_id)
                await store.forget_blob(self._db, workspace_id, blob_id)
            removed += len(blobs)
        return removed


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def _artifact(row: Record) -> pb.Artifact:
    return pb.Artifact(
        id=row["artifact_id"],
        media_type=row["media_type"],
        size_bytes=row["size_bytes"],
        sha256=row["sha256"],
        role=row["role"],
    )


def _deleted(key: SessionKey) -> Failure:
    return Failure(reasons.ERROR_REASON_DELETED, f"session {key[1]} is deleted")
