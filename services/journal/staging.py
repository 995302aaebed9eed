"""Stores the bytes that a projection refers to, before the projection is committed.

An outcome is never held hostage by the object store: after some seconds without it the caller
projects again, without bytes.
"""

import asyncio
import time

import structlog
from counterfoil.files.v1 import artifacts_pb2 as pb
from counterfoil.files.v1 import artifacts_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure, name_of
from services.journal.projection import Blob
from services.journal.rows import ThreadKey

PATIENCE_S = 30.0
"""How long an operation's bytes are tried, over all calls about it."""

_PAUSE_S_FIRST = 0.1
_PAUSE_S_MAX = 2.0
_MAY_PASS = (reasons.ERROR_REASON_UNAVAILABLE, reasons.ERROR_REASON_DEADLINE_EXCEEDED)

_log = structlog.get_logger("counterfoil.journal")


class Staging:
    """A client of the files service that knows when to give up."""

    def __init__(
        self,
        artifacts: artifacts_pb2_grpc.ArtifactServiceStub,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._artifacts = artifacts
        self._patience_s = patience_s
        self._since: dict[tuple[ThreadKey, str], float] = {}
        """When an operation's bytes were first tried. A call may end before the patience does, and
        its repeat goes on with what is left."""

    async def store(self, key: ThreadKey, operation_id: str, blobs: tuple[Blob, ...]) -> bool:
        """Whether all of them are stored now. A cancelled call may be repeated."""
        is_stored = await self._tried(
            key, operation_id, blobs, self._tries_since(key, operation_id)
        )
        self._since.pop((key, operation_id), None)
        return is_stored

    async def _tried(
        self, key: ThreadKey, operation_id: str, blobs: tuple[Blob, ...], since: float
    ) -> bool:
        pause = _PAUSE_S_FIRST
        while True:
            left = max(self._patience_s - (time.monotonic() - since), _PAUSE_S_FIRST)
            try:
                for blob in blobs:
                    await self._store(key, operation_id, blob, left)
                return True
            except Failure as failure:
                about = {"operation_id": operation_id, "reason": name_of(failure.reason)}
                has_time = time.monotonic() - since + pause < self._patience_s
                if failure.reason not in _MAY_PASS or not has_time:
                    _log.warning("a result's bytes are not kept", **about)
                    return False
                _log.info("a result's bytes wait for the object store", **about)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_S_MAX)

    async def _store(self, key: ThreadKey, operation_id: str, blob: Blob, seconds: float) -> None:
        request = pb.StageArtifactRequest(
            workspace_id=key.workspace_id,
            session_id=key.session_id,
            operation_id=operation_id,
            body=blob.body,
            media_type=blob.media_type,
            role=blob.role,
        )
        await self._artifacts.StageArtifact(request, timeout=seconds)

    def _tries_since(self, key: ThreadKey, operation_id: str) -> float:
        now = time.monotonic()
        # Whoever was cancelled and never came back.
        old = [one for one, at in self._since.items() if now - at > 10 * self._patience_s]
        for one in old:
            del self._since[one]
        return self._since.setdefault((key, operation_id), now)
