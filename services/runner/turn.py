"""A claimed turn as its owner knows it: the claim, the transcript's head, what is not recorded
yet."""

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from counterfoil.context.v1 import context_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import reference_pb2, usage_pb2

Kind = transcript_pb2.TranscriptEntryKind

INPUT = transcript_pb2.TRANSCRIPT_ENTRY_KIND_INPUT
ANSWER = transcript_pb2.TRANSCRIPT_ENTRY_KIND_ANSWER
RESULTS = transcript_pb2.TRANSCRIPT_ENTRY_KIND_RESULTS
WITHHELD = transcript_pb2.TRANSCRIPT_ENTRY_KIND_WITHHELD
NOTE = transcript_pb2.TRANSCRIPT_ENTRY_KIND_NOTE
CONTINUE = transcript_pb2.TRANSCRIPT_ENTRY_KIND_CONTINUE

_RECORDED_KINDS = {
    INPUT: turn_pb2.ENTRY_KIND_INPUT,
    ANSWER: turn_pb2.ENTRY_KIND_ANSWER,
    RESULTS: turn_pb2.ENTRY_KIND_RESULTS,
}


class Interrupt(asyncio.Event):
    """Set when an interrupt waits."""

    _on_set: Callable[[], None] | None = None

    def set(self) -> None:
        """An interrupt came; what was to be told is told once."""
        super().set()
        on_set, self._on_set = self._on_set, None
        if on_set is not None:
            on_set()

    @contextmanager
    def telling(self, on_set: Callable[[], None]) -> Generator[None]:
        """Calls `on_set` when an interrupt comes inside the block."""
        self._on_set = on_set
        try:
            yield
        finally:
            self._on_set = None


@dataclass
class Turn:
    """State of one claim. Everything here is derived from the authorities and may be lost."""

    claim: turn_pb2.Claim
    head: reference_pb2.Head
    entries: dict[tuple[int, "Kind.ValueType"], transcript_pb2.Entry] = field(
        default_factory=dict[tuple[int, "Kind.ValueType"], transcript_pb2.Entry]
    )
    unrecorded: list[turn_pb2.EntryRecord] = field(default_factory=list[turn_pb2.EntryRecord])
    attempts: int = 0
    id: str = field(init=False)
    """The turn's id."""
    thread: reference_pb2.ThreadRef = field(init=False)
    """Its thread."""
    fence: reference_pb2.Fence = field(init=False)
    """The claim that every write carries."""
    interrupt: Interrupt = field(default_factory=Interrupt)
    attached: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the owner may start something new: awaited before every first byte."""
    known_results: list[context_pb2.KnownResult] = field(
        default_factory=list[context_pb2.KnownResult]
    )
    """Results in the newest entry, for the next request."""
    summary_usage: list[usage_pb2.ModelUsage] = field(default_factory=list[usage_pb2.ModelUsage])
    """What summaries cost, as far as the ledger does not know of it."""
    may_end_late: bool = True
    """Whether a call of the thread, closed after its start, may end after all."""

    def __post_init__(self) -> None:
        self.id, self.thread = self.claim.turn_id, self.claim.thread
        self.fence = reference_pb2.Fence(thread=self.claim.thread, epoch=self.claim.epoch)

    @classmethod
    def of(cls, claim: turn_pb2.Claim, attached: asyncio.Event) -> "Turn":
        """The state at the start of a claim."""
        turn = cls(claim=claim, head=copied(claim.transcript_head), attached=attached)
        if claim.interrupted:
            turn.interrupt.set()
        return turn

    def next_attempt(self) -> reference_pb2.Attempt:
        """A new attempt of this owner."""
        self.attempts += 1
        return reference_pb2.Attempt(epoch=self.claim.epoch, number=self.attempts)

    def adopt(self, entry: transcript_pb2.Entry, head: reference_pb2.Head) -> None:
        """Takes a stored entry in; the ledger has not recorded it unless it is behind its head."""
        self.entries[(entry.round, entry.kind)] = entry
        self.head = head
        self.note_unrecorded(entry)

    def note_unrecorded(self, entry: transcript_pb2.Entry) -> None:
        """Remembers an entry for the next ledger write that records entries."""
        last = self.unrecorded[-1].seq if self.unrecorded else self.claim.transcript_head.seq
        if entry.seq > last:
            self.unrecorded.append(record_of(entry))

    def unrecorded_through(self, seq: int) -> list[turn_pb2.EntryRecord]:
        """What a write that publishes entry `seq` records: nothing behind it, because the ledger
        takes an answer or a results entry only together with what it publishes."""
        return [record for record in self.unrecorded if record.seq <= seq]

    def recorded(self, records: Sequence[turn_pb2.EntryRecord]) -> None:
        """The ledger answered a write that recorded these entries."""
        if not records:
            return
        last = records[-1]
        recorded = self.claim.transcript_head
        if last.seq > recorded.seq:
            recorded.seq, recorded.digest = last.seq, last.digest
        self.unrecorded = [record for record in self.unrecorded if record.seq > last.seq]

    def vouch_for(self, point: turn_pb2.LogPoint) -> None:
        """The ledger gave answers with this log point: the entry that holds them vouches for it."""
        if point.position > self.claim.log_point.position:
            self.claim.log_point.CopyFrom(point)

    def unpublished(self) -> list[transcript_pb2.Entry]:
        """Stored answers and results behind the recorded head, in order."""
        seqs = {record.seq for record in self.unrecorded}
        found = [e for e in self.entries.values() if e.seq in seqs and e.kind in (ANSWER, RESULTS)]
        return sorted(found, key=lambda entry: entry.seq)

    def skip(self, entries: Iterable[transcript_pb2.Entry]) -> None:
        """These entries are taken out of the history: the ledger records them as the host's."""
        ids = {entry.id for entry in entries}
        for record in self.unrecorded:
            if record.entry_id in ids:
                record.kind = turn_pb2.ENTRY_KIND_HOST
                del record.operation_ids[:]

    def newest_answer(self) -> transcript_pb2.Entry | None:
        """The answer of the newest round that this owner knows the entry of."""
        rounds = [round_ for round_, kind in self.entries if kind == ANSWER]
        return self.entries[(max(rounds), ANSWER)] if rounds else None


def copied(head: reference_pb2.Head) -> reference_pb2.Head:
    """A head of its own: the claim's recorded head and the transcript's move apart."""
    return reference_pb2.Head(seq=head.seq, digest=head.digest)


def record_of(entry: transcript_pb2.Entry) -> turn_pb2.EntryRecord:
    """How the ledger records a transcript entry."""
    return turn_pb2.EntryRecord(
        entry_id=entry.id,
        seq=entry.seq,
        digest=entry.digest,
        kind=_RECORDED_KINDS.get(entry.kind, turn_pb2.ENTRY_KIND_HOST),
        operation_ids=[result.operation_id for result in entry.content.results],
    )
