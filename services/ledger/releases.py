"""Leases that runners give back: a release is never lost, because a lost one would count against
its turn as if the runner had died."""

import asyncio
from collections import deque
from dataclasses import dataclass

import structlog
from counterfoil.ledger.v1 import turn_pb2

from services.ledger import claiming
from services.ledger.lanes import Lanes
from services.ledger.streams import RunnerStream, key_of

_log = structlog.get_logger("counterfoil.ledger.attach")

_NAMES = {value: name for name, value in turn_pb2.ReleaseReason.items()}


@dataclass(frozen=True, slots=True)
class _Release:
    stream_id: str
    runner_name: str
    message: turn_pb2.AttachRelease


class Releases:
    """Releases of all streams of this process, in the order of their arrival."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._waiting: deque[_Release] = deque()
        self._writing = asyncio.Lock()

    async def take(self, stream: RunnerStream, release: turn_pb2.AttachRelease) -> None:
        """Write a release. Raises Unavailable; it is then kept, and written by `flush`."""
        stream.drop(key_of(release.claim.thread), release.claim.epoch)
        if release.reason == turn_pb2.RELEASE_REASON_DRAINING:
            stream.capacity = 0  # it shuts down: what it got now, it could only give back
        self._waiting.append(_Release(stream.id, stream.runner_name, release))
        await self.flush()

    async def flush(self) -> None:
        """Write what the database did not take before. Raises Unavailable."""
        if not self._waiting:
            return
        async with self._writing:
            while self._waiting:
                await self._write(self._waiting[0])
                self._waiting.popleft()

    async def _write(self, release: _Release) -> None:
        claim, reason = release.message.claim, release.message.reason
        workspace_id, session_id, _ = key_of(claim.thread)
        async with self._lanes.change("ledger.release_claim", workspace_id, session_id) as change:
            if change is not None and change.lane.thread.lease_stream == release.stream_id:
                claiming.release(change.lane, claim.epoch, reason, release.message.epoch_seen)
        _log.info(
            "claim released",
            runner=release.runner_name,
            session_id=session_id,
            epoch=claim.epoch,
            reason=_NAMES.get(reason, str(reason)),
            detail=release.message.detail,
        )
