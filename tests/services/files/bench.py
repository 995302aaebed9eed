"""A files service on a real database and a real object store, without a kernel."""

from dataclasses import dataclass
from typing import Any, cast

import asyncpg
from counterfoil.files.v1 import artifacts_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from foundation.objects import ObjectStore
from foundation.storage import Database, SealRing
from services.files.service import ArtifactServicer
from services.files.vault import Vault

CONTEXT = cast("Any", None)
W = "wrkspc_1"
A, B, C = "sesn_a", "sesn_b", "sesn_c"
GRACE_MS = 24 * 3_600_000


@dataclass
class Bench:
    dsn: str
    db: Database
    ring: SealRing
    objects: ObjectStore
    service: ArtifactServicer

    @classmethod
    def of(cls, dsn: str, db: Database, objects: ObjectStore) -> "Bench":
        ring = SealRing("a", {"a": bytes(32)})
        return cls(dsn, db, ring, objects, ArtifactServicer(db, Vault(db, ring, objects)))

    async def stage(
        self, body: bytes, session: str = A, workspace: str = W, operation: str = "op_1"
    ) -> str:
        request = pb.StageArtifactRequest(
            workspace_id=workspace,
            session_id=session,
            operation_id=operation,
            body=body,
            media_type="text/plain",
            role=pb.ARTIFACT_ROLE_TOOL_OUTPUT,
        )
        return (await self.service.StageArtifact(request, CONTEXT)).artifact.id

    async def read(self, id: str, session: str = A, workspace: str = W) -> bytes:
        request = pb.ReadArtifactRequest(workspace_id=workspace, session_id=session, artifact_id=id)
        return (await self.service.ReadArtifact(request, CONTEXT)).body

    async def copy(self, *ids: str, source: str = A, target: str = B, workspace: str = W) -> None:
        request = pb.CopyArtifactsRequest(
            workspace_id=workspace,
            source_session_id=source,
            target_session_id=target,
            artifact_ids=ids,
        )
        await self.service.CopyArtifacts(request, CONTEXT)

    async def copy_if_there(self, id: str) -> None:
        """A copy to another session, unless it is collected already."""
        try:
            await self.copy(id)
        except Failure as failure:
            if failure.reason != reasons.ERROR_REASON_NOT_FOUND:
                raise

    async def states(self, session: str = A, workspace: str = W) -> dict[str, str]:
        """Artifact id to the name of its state."""
        request = pb.ListArtifactsRequest(workspace_id=workspace, session_id=session)
        listed = await self.service.ListArtifacts(request, CONTEXT)
        names = pb.ArtifactState.Name
        return {
            one.artifact.id: names(one.state).removeprefix("ARTIFACT_STATE_").lower()
            for one in listed.artifacts
        }

    async def condemn(self, *ids: str, session: str = A, grace_ms: int = GRACE_MS) -> int:
        request = pb.CondemnArtifactsRequest(
            workspace_id=W, session_id=session, artifact_ids=ids, grace_ms=grace_ms
        )
        return (await self.service.CondemnArtifacts(request, CONTEXT)).condemned

    async def sweep(
        self, *ids: str, session: str = A, grace_ms: int = GRACE_MS
    ) -> pb.SweepArtifactsResponse:
        request = pb.SweepArtifactsRequest(
            workspace_id=W, session_id=session, artifact_ids=ids, grace_ms=grace_ms
        )
        return await self.service.SweepArtifacts(request, CONTEXT)

    async def sweep_bytes(self, limit: int = 1000) -> int:
        """The whole inventory; how many objects were removed."""
        removed, after = 0, ""
        while True:
            request = pb.SweepBytesRequest(after=after, limit=limit)
            page = await self.service.SweepBytes(request, CONTEXT)
            removed += page.removed
            if not page.next:
                return removed
            after = page.next

    async def tombstone(self, session: str = A, workspace: str = W) -> None:
        request = pb.TombstoneRequest(workspace_id=workspace, session_id=session)
        await self.service.Tombstone(request, CONTEXT)

    async def keys(self, prefix: str = "") -> list[str]:
        """Every object in the store."""
        return await self.objects.keys(prefix, "", 1000)

    async def age(self, ms: int = GRACE_MS) -> None:
        """Time passes."""
        await self.sql(
            "UPDATE files.artifacts SET"
            f" staged_at = staged_at - {ms} * interval '1 millisecond',"
            f" condemned_at = condemned_at - {ms} * interval '1 millisecond'"
        )

    async def sql(self, statement: str) -> Any:
        """Run one statement; returns the first value."""
        connection = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()
