"""The same histories over PostgreSQL: the real service with its records, snapshots and kept
prefixes, and processes that die at its commits."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any, ClassVar, TypeVar, cast
from unittest.mock import patch

from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.files.v1 import artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2_grpc
from counterfoil.transcript.v1 import transcript_pb2_grpc

from foundation import failpoints
from foundation.storage import Database, SealRing
from services.context import prefixes
from services.context.records import Records, open_transition
from services.context.service import ContextServicer
from services.context.shrinking import Mode
from tests.laws.projection.authorities import KEY, THREAD, Crash, Memory, Row
from tests.laws.projection.machine import ProjectionMachine
from tests.support.postgres import SessionPostgres

T = TypeVar("T")

_EMPTY = """
TRUNCATE context.fences, context.transitions, context.checkpoints, context.revocations,
    context.snapshots, context.parts, context.part_uses, context.prefixes, context.access
"""
_TRANSITIONS = "SELECT * FROM context.transitions WHERE version > $1"
_CHECKPOINTS = "SELECT * FROM context.checkpoints WHERE version > $1"
_THREAD = "projection-stage"
_PLACES = ("record.after", "record.before", "prepare.after", "prepare.before")


@dataclass
class Stage:
    """A database, and a loop in a thread of its own that everything over it runs in."""

    loop: asyncio.AbstractEventLoop
    db: Database
    ring: SealRing

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine; may be asked for while another one waits for a hook."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)


@contextmanager
def open_stage(postgres: SessionPostgres) -> Generator[Stage]:
    """A stage over a fresh database."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=_THREAD)
    thread.start()

    def run(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    opened = postgres.database("context")
    try:
        dsn = run(opened.__aenter__())
        try:
            db = run(Database.open(dsn, service="context", pool_size=4))
            try:
                with patch.object(prefixes, "ENTRIES_MIN", 4):
                    yield Stage(loop, db, SealRing("a", {"a": bytes(32)}))
            finally:
                run(db.close())
        finally:
            run(opened.__aexit__(None, None, None))
    finally:
        run(loop.shutdown_default_executor())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Hooks(Records):
    """Real records; what is to happen around them is hung on the service's failpoints."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.db, stage.ring)
        self.before_record: Callable[[], None] | None = None
        self.after_record: Callable[[], None] | None = None
        self._places = cycle(_PLACES)
        self._place = next(self._places)

    async def hit(self, name: str) -> None:
        """What happens at a failpoint."""
        if name == "context.record.before" and (hook := self.before_record) is not None:
            self.before_record = None
            await asyncio.to_thread(hook)
        if self.after_record is not None and name == f"context.{self._place}":
            self.after_record, self._place = None, next(self._places)
            raise Crash


class StoredMemory(Memory):
    """A thread whose context authority is the real service; the rest is in memory."""

    def __init__(self, stage: Stage, mode: Mode) -> None:
        self.stage = stage
        super().__init__(mode)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._known: list[Row] = []
        self.records = cast(Any, _Hooks(self.stage))
        self.run(self._emptied())
        failpoints.install(self.records.hit)

    async def _emptied(self) -> None:
        async with self.stage.db.commit("test.empty") as c:
            await c.execute(_EMPTY)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.stage.run(work)

    def process(self) -> Any:
        return StoredProcess(self)

    def may_wait(self) -> bool:
        return threading.current_thread().name != _THREAD

    def snapshot_count(self) -> int:
        return self.run(self.stage.db.fetchval("SELECT count(*) FROM context.snapshots"))

    def rows(self) -> list[Row]:
        return self.run(self._rows())

    def reread(self) -> None:
        self._known.clear()

    async def _rows(self) -> list[Row]:
        # Stored records never change, so only what is behind the known ones is read.
        db, ring = self.stage.db, self.stage.ring
        known = self._known[-1].version if self._known else 0
        found = [
            (
                row["version"],
                row["hw"],
                Row(row["version"], row["epoch"], (row["turn_id"], row["round"]), transition=one),
            )
            for row in await db.fetch(_TRANSITIONS, known)
            if (one := open_transition(ring, KEY, row))
        ]
        for row in await db.fetch(_CHECKPOINTS, known):
            losses = await self.records.at(KEY, row["version"])
            turn = (row["turn_id"], row["round"])
            made = Row(row["version"], row["epoch"], turn, checkpoint=losses.checkpoint)
            found.append((row["version"], 0, made))
        self._known += [row for _, _, row in sorted(found, key=lambda one: one[:2])]
        return list(self._known)


class StoredProcess:
    """One process of the real service."""

    def __init__(self, memory: StoredMemory) -> None:
        self._service = ContextServicer(
            memory.stage.db,
            memory.stage.ring,
            cast(transcript_pb2_grpc.TranscriptServiceStub, memory.transcript),
            cast(journal_pb2_grpc.JournalServiceStub, memory.journal),
            cast(artifacts_pb2_grpc.ArtifactServiceStub, memory.artifacts),
            summary_mode=memory.mode,
        )

    async def prepare(self, request: pb.PrepareRequestRequest) -> pb.PrepareRequestResponse:
        return await self._service.PrepareRequest(request, None)

    async def rebuild(self, id: str) -> bytes:
        request = pb.RebuildRequest(thread=THREAD, snapshot_id=id)
        return (await self._service.Rebuild(request, None)).body


class StoredMachine(ProjectionMachine):
    """The same, over a stage."""

    stage: ClassVar[Stage]

    def opened(self, mode: Any) -> Memory:
        return StoredMemory(self.stage, mode)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            failpoints.install(None)

    def store_is_silent(self, overflowed: str) -> None:
        """Kept messages hold their images: a new process may not need the store at all."""

    # What is sealed cannot be changed a little; rows that were changed are tried elsewhere.

    def corrupt_transition(self) -> None:
        raise NotImplementedError

    def corrupt_checkpoint(self) -> None:
        raise NotImplementedError
