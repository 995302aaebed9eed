"""Collects artifacts that nothing refers to: condemned first, deleted a grace period later.

Every step may be repeated, by several runners at once, and may fail: then it is done later. What is
referred to is looked up before each step, and what cannot be looked up is left alone.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import structlog
from counterfoil.files.v1 import artifacts_pb2 as pb
from counterfoil.files.v1 import artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc

from foundation.errors import Failure

GRACE_MS = 24 * 3_600_000
"""How long an artifact stays that nothing refers to: before it is condemned, and after."""

_CALL_SECONDS = 120.0
_OWNERS = 100
_AT_ONCE = 1000
_INVENTORY_EVERY = 24

_log = structlog.get_logger("counterfoil.collector")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a session's artifacts."""

    condemn: tuple[str, ...] = ()
    sweep: tuple[str, ...] = ()
    revive: tuple[str, ...] = ()


def plan(owned: Iterable[pb.OwnedArtifact], referred: Collection[str]) -> Plan:
    """Decides by state and reference alone; the files service knows who is old enough."""
    condemn, sweep, revive = list[str](), list[str](), list[str]()
    for one in owned:
        id, condemned = one.artifact.id, one.state == pb.ARTIFACT_STATE_CONDEMNED
        if one.state == pb.ARTIFACT_STATE_DELETED:
            continue
        if id in referred:
            if condemned:
                revive.append(id)
        elif condemned:
            sweep.append(id)
        else:
            condemn.append(id)
    return Plan(tuple(condemn), tuple(sweep), tuple(revive))


@dataclass(slots=True)
class Tally:
    """What a pass did."""

    sessions: int = 0
    condemned: int = 0
    revived: int = 0
    deleted: int = 0
    objects: int = 0
    failed: int = 0
    """Sessions that were left for another time."""


@dataclass(slots=True)
class Collector:
    """Goes through all sessions that own artifacts."""

    artifacts: artifacts_pb2_grpc.ArtifactServiceStub
    journal: journal_pb2_grpc.JournalServiceStub
    grace_ms: int = GRACE_MS
    tally: Tally = field(default_factory=Tally)

    async def sessions(self) -> AsyncGenerator[pb.ArtifactOwner]:
        """Each session whose artifacts have to be looked at."""
        after: pb.ArtifactOwner | None = None
        while True:
            request = pb.ListDueSessionsRequest(grace_ms=self.grace_ms, after=after, limit=_OWNERS)
            page = (await self.artifacts.ListDueSessions(request, timeout=_CALL_SECONDS)).owners
            for owner in page:
                yield owner
            if len(page) < _OWNERS:
                return
            after = page[-1]

    async def look_at(self, owner: pb.ArtifactOwner) -> None:
        """One session. What fails is left for another time."""
        self.tally.sessions += 1
        try:
            await self._collect(owner)
        except Failure as failure:
            self.tally.failed += 1
            _log.warning("artifacts stay for now", session=owner.session_id, why=failure.text)

    async def inventory(self) -> AsyncGenerator[int]:
        """Removes bytes without a row; yields how many objects each page had."""
        after = ""
        while True:
            request = pb.SweepBytesRequest(after=after, limit=_AT_ONCE)
            page = await self.artifacts.SweepBytes(request, timeout=_CALL_SECONDS)
            self.tally.objects += page.removed
            yield page.looked_at
            if not page.next:
                return
            after = page.next

    async def _collect(self, owner: pb.ArtifactOwner) -> None:
        # Before the references: what is staged later is too new to be condemned.
        owned = await self._owned(owner)
        request = journal_pb2.CollectReferencesRequest(
            workspace_id=owner.workspace_id, session_id=owner.session_id
        )
        answer = await self.journal.CollectReferences(request, timeout=_CALL_SECONDS)
        todo = plan(owned, frozenset(answer.artifact_ids))
        for ids in _parts(todo.revive):
            await self._revive(owner, ids)
        for ids in _parts(todo.sweep):
            await self._sweep(owner, ids)
        for ids in _parts(todo.condemn):
            await self._condemn(owner, ids)

    async def _owned(self, owner: pb.ArtifactOwner) -> list[pb.OwnedArtifact]:
        owned, after = list[pb.OwnedArtifact](), ""
        while True:
            request = pb.ListArtifactsRequest(
                workspace_id=owner.workspace_id,
                session_id=owner.session_id,
                artifact_id_after=after,
            )
            page = await self.artifacts.ListArtifacts(request, timeout=_CALL_SECONDS)
            owned += page.artifacts
            if not page.has_more:
                return owned
            after = page.artifacts[-1].artifact.id

    async def _revive(self, owner: pb.ArtifactOwner, ids: Sequence[str]) -> None:
        request = pb.CopyArtifactsRequest(
            workspace_id=owner.workspace_id,
            source_session_id=owner.session_id,
            target_session_id=owner.session_id,
            artifact_ids=ids,
        )
        await self.artifacts.CopyArtifacts(request, timeout=_CALL_SECONDS)
        self.tally.revived += len(ids)

    async def _sweep(self, owner: pb.ArtifactOwner, ids: Sequence[str]) -> None:
        request = pb.SweepArtifactsRequest(
            workspace_id=owner.workspace_id,
            session_id=owner.session_id,
            artifact_ids=ids,
            grace_ms=self.grace_ms,
        )
        swept = await self.artifacts.SweepArtifacts(request, timeout=_CALL_SECONDS)
        self.tally.deleted += swept.deleted
        self.tally.objects += swept.objects_removed

    async def _condemn(self, owner: pb.ArtifactOwner, ids: Sequence[str]) -> None:
        request = pb.CondemnArtifactsRequest(
            workspace_id=owner.workspace_id,
            session_id=owner.session_id,
            artifact_ids=ids,
            grace_ms=self.grace_ms,
        )
        condemned = await self.artifacts.CondemnArtifacts(request, timeout=_CALL_SECONDS)
        self.tally.condemned += condemned.condemned


async def collect_for_ever(
    artifacts: artifacts_pb2_grpc.ArtifactServiceStub,
    journal: journal_pb2_grpc.JournalServiceStub,
    every_seconds: float,
) -> None:
    """A pass now and then, and now and then the inventory behind one that found sessions. Several
    runners do so at different times."""
    passes = 0
    while True:
        await asyncio.sleep(every_seconds * random.uniform(0.5, 1.5))
        collector = Collector(artifacts, journal)
        try:
            async for owner in collector.sessions():
                await collector.look_at(owner)
            if collector.tally.sessions:
                passes += 1
                if passes % _INVENTORY_EVERY == 0:
                    async for _ in collector.inventory():
                        pass
        except Failure as failure:
            _log.warning("the collector goes on later", why=failure.text)
        if collector.tally.condemned or collector.tally.deleted:
            done = collector.tally
            _log.info("artifacts were collected", condemned=done.condemned, deleted=done.deleted)


def _parts(ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE))
