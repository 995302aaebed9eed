"""Everything that the core of the context authority asks, in memory: one thread's transcript,
results, artifacts, records and snapshots."""

import hashlib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.context.v1 import snapshots_pb2 as snapshots_pb
from counterfoil.files.v1 import artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc
from counterfoil.transcript.v1 import transcript_pb2, transcript_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Head, ThreadRef

from foundation import digests
from foundation.errors import Failure, fenced
from services.context.breaks import Breaks
from services.context.cache import Warm, WarmCache
from services.context.checkpoints import Checkpoint
from services.context.diff import Change
from services.context.history import History
from services.context.losses import NO_LOSSES, Losses
from services.context.parts import Parts
from services.context.prefixes import Prefixes
from services.context.preparing import Preparer
from services.context.recipe import Frame, Recipe, ThreadKey
from services.context.records import Records
from services.context.redacting import Redactor
from services.context.shrinking import Mode, Shrinker
from services.context.snapshots import Snapshots, StaleLosses
from services.context.transitions import Transition, unreadable
from tests.services.context.conftest import ArtifactsInMemory, JournalInMemory

KEY: ThreadKey = ("wrkspc_1", "sesn_1", "sthr_1")
THREAD = ThreadRef(workspace_id=KEY[0], session_id=KEY[1], thread_id=KEY[2])

Kind = transcript_pb2.TranscriptEntryKind.ValueType
T = TypeVar("T")


class Crash(Exception):
    """The process is gone; what it committed stays."""


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nobody."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    work.close()
    raise AssertionError("a coroutine over memory had to wait")


class Transcript:
    """Entries of the thread, in order."""

    def __init__(self) -> None:
        self.entries: list[transcript_pb2.Entry] = []

    @property
    def head(self) -> Head:
        return self.head_at(len(self.entries))

    def head_at(self, seq: int) -> Head:
        return Head(seq=seq, digest=self.entries[seq - 1].digest) if seq else Head()

    def append(self, kind: Kind, turn_id: str, **content: Any) -> transcript_pb2.Entry:
        seq = len(self.entries) + 1
        entry = transcript_pb2.Entry(
            id=f"tent_{seq}",
            seq=seq,
            kind=kind,
            turn_id=turn_id,
            content=transcript_pb2.EntryContent(**content),
        )
        said = entry.content.SerializeToString(deterministic=True)
        entry.digest = digests.digest("test", self.head.digest, said)
        self.entries.append(entry)
        return entry

    async def ListEntries(
        self, request: transcript_pb2.ListEntriesRequest
    ) -> transcript_pb2.ListEntriesResponse:
        return transcript_pb2.ListEntriesResponse(
            entries=self.entries[request.seq_after : request.seq_through],
            head=self.head,
            before=self.head_at(request.seq_after),
        )


class Journal(JournalInMemory):
    """Results, answered in an order that says nothing."""

    async def GetOperations(
        self, request: journal_pb2.GetOperationsRequest
    ) -> journal_pb2.GetOperationsResponse:
        found = await super().GetOperations(request)
        ordered = sorted(found.operations, key=lambda one: hashlib.sha256(one.id.encode()).digest())
        return journal_pb2.GetOperationsResponse(operations=ordered)


@dataclass(frozen=True)
class Row:
    """One stored record: a transition or a checkpoint, and who stored it."""

    version: int
    epoch: int
    turn: tuple[str, int]
    transition: Transition | None = None
    checkpoint: Checkpoint | None = None


@dataclass
class Fence:
    """What every write of the context authority is admitted by."""

    epoch_max: int = 0

    def admits(self, epoch: int) -> bool:
        return epoch >= self.epoch_max

    def raise_to(self, epoch: int) -> None:
        self.epoch_max = max(self.epoch_max, epoch)


class MemoryRecords(Records):
    """The thread's records, each admitted by its epoch and the version that it was decided on."""

    def __init__(self, fence: Fence) -> None:
        self.rows: list[Row] = []
        self.fence = fence
        self.broken: dict[str, Transition | None] = {}
        """What is read in place of a stored record; None for one that cannot be opened."""
        self.before_record: Callable[[], None] | None = None
        self.after_record: Callable[[], None] | None = None

    @property
    def version(self) -> int:
        return self.rows[-1].version if self.rows else 0

    async def newest(self, key: ThreadKey) -> Losses:
        return await self.at(key, self.version)

    async def at(self, key: ThreadKey, version: int) -> Losses:
        rows = [row for row in self.rows if row.version <= version]
        checkpoints = [row.checkpoint for row in rows if row.checkpoint is not None]
        checkpoint = checkpoints[-1] if checkpoints else None
        if checkpoint is not None and checkpoint.id in self.broken:
            raise Failure(reasons.ERROR_REASON_CORRUPT, "a checkpoint cannot be read")
        every = [row.transition for row in rows if row.transition is not None]
        covered = checkpoint.through_seq if checkpoint else 0
        anchor = checkpoint.anchor_seq if checkpoint else 0
        whole = NO_LOSSES.with_transitions(every, version)
        shown = NO_LOSSES.with_transitions(
            [self._read(one) for one in every if one.seq > covered or one.seq == anchor], version
        )
        return Losses(
            version,
            whole.count,
            whole.digest,
            shown.transitions,
            checkpoint,
            checkpoint.id if checkpoint else "",
            len(checkpoints),
        )

    async def record_transitions(
        self,
        key: ThreadKey,
        epoch: int,
        turn: tuple[str, int],
        before: Losses,
        batch: Sequence[Transition],
    ) -> Losses | None:
        rows = [Row(before.version + 1, epoch, turn, transition=one) for one in batch]
        if not self.store(epoch, before.version, rows):
            return None
        return before.with_transitions(batch, before.version + 1)

    async def record_checkpoint(
        self, key: ThreadKey, epoch: int, turn: tuple[str, int], before: Losses, made: Checkpoint
    ) -> Losses | None:
        row = Row(before.version + 1, epoch, turn, checkpoint=made)
        if not self.store(epoch, before.version, [row]):
            return None
        return before.with_checkpoint(made, before.version + 1)

    async def checkpoints_of_round(self, key: ThreadKey, turn: tuple[str, int]) -> int:
        return sum(1 for row in self.rows if row.checkpoint is not None and row.turn == turn)

    def store(self, epoch: int, version: int, rows: Sequence[Row]) -> bool:
        """All rows or none."""
        if (hook := self.before_record) is not None:
            self.before_record = None
            hook()
        if not self.fence.admits(epoch) or not self.is_newest(version):
            return False
        self.fence.raise_to(epoch)
        self.rows += rows
        if (hook := self.after_record) is not None:
            self.after_record = None
            hook()
        return True

    def is_newest(self, version: int) -> bool:
        return version == self.version

    def _read(self, one: Transition) -> Transition:
        if one.id not in self.broken:
            return one
        return self.broken[one.id] or unreadable(one.id, one.seq, one.part, one.ordinal)


class _MemoryParts(Parts):
    def __init__(self) -> None:
        self.bodies: dict[bytes, bytes] = {}

    async def open(self, workspace_id: str, addresses: Iterable[bytes]) -> dict[bytes, bytes]:
        return {address: self.bodies[address] for address in addresses}


class MemorySnapshots(Snapshots):
    """The thread's snapshots, admitted like records."""

    def __init__(self, fence: Fence, records: MemoryRecords) -> None:
        self.fence = fence
        self.records = records
        self.recipes: dict[str, Recipe] = {}
        self._parts = self.parts = _MemoryParts()

    async def addresses(self, key: ThreadKey, frame: Frame, tail: bytes = b"") -> tuple[bytes, ...]:
        parts = [*frame.parts, *([tail] if tail else [])]
        return tuple(hashlib.sha256(part).digest() for part in parts)

    async def put(
        self,
        request: pb.PrepareRequestRequest,
        key: ThreadKey,
        id: str,
        made: Recipe,
        parts: tuple[bytes, ...],
        warm: Warm,
    ) -> bool:
        await self.admit(key, request.fence.epoch)
        if not self.records.is_newest(made.losses_version):
            raise StaleLosses
        self.fence.raise_to(request.fence.epoch)
        self.parts.bodies |= {hashlib.sha256(part).digest(): part for part in parts}
        warm.stored = (made.request_head, made.pins)
        return self.recipes.setdefault(id, made) is made

    async def find(self, key: ThreadKey, id: str) -> Recipe | None:
        return self.recipes.get(id)

    async def admit(self, key: ThreadKey, epoch: int) -> int:
        if not self.fence.admits(epoch):
            raise fenced(epoch, self.fence.epoch_max)
        return self.fence.epoch_max


class _NothingKept(Prefixes):
    def __init__(self) -> None:
        pass

    async def find(self, thread: ThreadRef, seq_max: int, losses: Losses) -> Warm | None:
        return None


class _NothingRedacted(Redactor):
    def __init__(self) -> None:
        pass

    async def since(self, key: ThreadKey, version: int, seq_max: int) -> bool:
        return False


class _NobodyCounts(Breaks):
    def __init__(self) -> None:
        pass

    async def watch(
        self, thread: ThreadRef, id: str, made: Recipe, frame: Frame, body: bytes
    ) -> Change:
        return snapshots_pb.CONTEXT_CHANGE_UNSPECIFIED


@dataclass
class Memory:
    """One thread's whole environment; processes come and go."""

    mode: Mode = "extractive"
    transcript: Transcript = field(default_factory=Transcript)
    journal: Journal = field(default_factory=Journal)
    artifacts: ArtifactsInMemory = field(default_factory=ArtifactsInMemory)
    fence: Fence = field(default_factory=Fence)

    def __post_init__(self) -> None:
        self.records = MemoryRecords(self.fence)
        self.snapshots = MemorySnapshots(self.fence, self.records)

    def process(self) -> "Process":
        """A process that knows nothing yet."""
        return Process(self)

    def history(self) -> History:
        """Readers that keep nothing."""
        return History(
            cast(transcript_pb2_grpc.TranscriptServiceStub, self.transcript),
            cast(journal_pb2_grpc.JournalServiceStub, self.journal),
            cast(artifacts_pb2_grpc.ArtifactServiceStub, self.artifacts),
            _NothingKept(),
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return at_once(work)

    def may_wait(self) -> bool:
        """Whether records can be read from here."""
        return True

    def snapshot_count(self) -> int:
        """How many requests are stored."""
        return len(self.snapshots.recipes)

    def rows(self) -> list[Row]:
        """All records, in their order."""
        return list(self.records.rows)

    def reread(self) -> None:
        """The next `rows` are all read anew."""


class Process:
    """One process of the context authority."""

    def __init__(self, memory: Memory) -> None:
        self._cache = WarmCache()
        self._preparer = Preparer(
            memory.history(),
            memory.records,
            memory.snapshots,
            Shrinker(memory.records, memory.mode),
            _NothingRedacted(),
            _NobodyCounts(),
        )
        self._memory = memory

    async def prepare(self, request: pb.PrepareRequestRequest) -> pb.PrepareRequestResponse:
        with self._cache.loan(KEY) as loan:
            return await self._preparer.prepare(request, KEY, loan)

    async def rebuild(self, id: str) -> bytes:
        made = self._memory.snapshots.recipes[id]
        return await self._preparer.rebuilt(THREAD, KEY, id, made)
