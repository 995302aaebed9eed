"""What must hold between the rows of a log, its head and its index; pure.

A row is checked against the digest that is stored before it and the one that was computed there, so
that one changed row is one finding and not a finding for every row behind it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from counterfoil.ledger.v1 import turn_pb2
from counterfoil.types.v1.reference_pb2 import Head

from foundation.storage import SealBroken, SealRing
from services.ledger import log_chain
from services.ledger.log_row import KIND_EVENT, KIND_MARK, KIND_QUEUED, LogHead
from services.ledger.log_types import THREAD_IDLE

_FINDINGS_MAX = 1000


class StoredRow(NamedTuple):
    """A row of the table as it is stored."""

    position: int
    kind: int
    event_id: str
    event_type: str
    processed_at: datetime | None
    refers_position: int | None
    sealed: bytes | None
    commitment: bytes
    digest: bytes
    transcript_seq: int | None
    transcript_digest: bytes | None

    @property
    def transcript_head(self) -> Head | None:
        """The transcript's head, if the row has one; half of one matches nothing."""
        if self.transcript_seq is None and self.transcript_digest is None:
            return None
        # A negative sequence is never written.
        seq = -1 if self.transcript_seq is None else self.transcript_seq
        return Head(seq=seq, digest=self.transcript_digest or b"")


@dataclass(slots=True)
class _Queued:
    event_id: str
    event_type: str


class Audit:
    """Takes the rows of one log in order, then its head; collects what does not hold."""

    def __init__(
        self, ring: SealRing, workspace_id: str, session_id: str, redactions: Mapping[int, bytes]
    ) -> None:
        """`redactions`: seals of entries whose body was replaced, by position."""
        self._redactions = redactions
        self._ring = ring
        self._workspace_id = workspace_id
        self._session_id = session_id
        self._chain = log_chain.chain(workspace_id, session_id)
        self._before: tuple[bytes, ...] = (b"",)
        self._waiting: dict[int, _Queued] = {}
        self._processed_at: datetime | None = None
        self._digests: dict[int, bytes] = {}
        self.position = 0
        self.digest = b""
        self.entries = 0
        self.findings: list[turn_pb2.Finding] = []
        self.vouches: list[turn_pb2.TranscriptVouch] = []
        self.points: list[turn_pb2.LogPoint] = []

    def row(self, row: StoredRow) -> None:
        """Check the next row."""
        self.entries += 1
        if row.position != self.position + 1:
            self._find(self.position + 1, f"missing: the next entry is {row.position}")
        self._link(row)
        self._content(row)
        self._time(row)
        self._mark(row)
        if row.event_type == THREAD_IDLE and row.transcript_head is not None:
            head = row.transcript_head
            self.vouches.append(turn_pb2.TranscriptVouch(position=row.position, head=head))
        self.position, self.digest = row.position, row.digest
        self._digests[row.position] = row.digest
        self.points.append(turn_pb2.LogPoint(position=row.position, digest=row.digest))

    def head(self, head: LogHead) -> None:
        """Compare with the session's row."""
        if head.position > self.position:
            self._find(
                self.position + 1, f"missing: the log ends here, its head is {head.position}"
            )
        elif head.position < self.position:
            self._find(head.position + 1, "is behind the head of the session")
            self._find(0, f"the head is {head.position}, the log goes on to {self.position}")
        elif head.digest != self.digest:
            self._find(0, "the head's digest is not that of the last entry")
        if head.last_processed_at != self._processed_at:
            self._find(0, "the head's time is not that of the last processed entry")

    def expected(self, point: turn_pb2.LogPoint) -> None:
        """Compare with a head that was kept outside."""
        if point.position > self.position:
            self._find(
                self.position + 1,
                f"missing: the log ends here, and had reached {point.position} before",
            )
        elif point.position and self._digests.get(point.position) != point.digest:
            self._find(point.position, "its digest is not the one that was kept outside")

    def queued(self, positions: Sequence[int]) -> None:
        """Compare with the index of queued rows; a log that does not hold is no measure for it."""
        if any(not finding.informational for finding in self.findings):
            return
        for position in sorted(set(positions) ^ set(self._waiting)):
            state = "is queued, but its index has lost it"
            if position not in self._waiting:
                state = "is in the index of queued entries, but does not wait"
            self._find(position, state)

    def _link(self, row: StoredRow) -> None:
        header = log_chain.header(
            row.position,
            row.kind,
            row.event_id,
            row.event_type,
            row.processed_at,
            row.refers_position,
            row.transcript_head,
        )
        computed = [self._chain.next(before, header, row.commitment) for before in self._before]
        if row.digest in computed:
            self._before = (row.digest,)
            return
        self._find(row.position, "the entry does not match its digest")
        self._before = (row.digest, *computed)

    def _content(self, row: StoredRow) -> None:
        if row.kind == KIND_MARK:
            if row.sealed is not None or row.commitment:
                self._find(row.position, "a mark has content")
            return
        if row.sealed is None:
            self._find(row.position, "the content was erased", informational=True)
            return
        try:
            salt, body = log_chain.open_body(
                self._ring,
                row.sealed,
                self._workspace_id,
                self._session_id,
                row.position,
                row.event_id,
            )
        except SealBroken:
            self._find(row.position, "the content does not open")
            return
        if log_chain.committed(salt, body) == row.commitment:
            return
        where = (self._workspace_id, self._session_id, row.position)
        seal = self._redactions.get(row.position)
        if log_chain.is_redacted(self._ring, *where, row.commitment, seal):
            self._find(row.position, "the content was redacted", informational=True)
        else:
            self._find(row.position, "the content does not match its commitment")

    def _time(self, row: StoredRow) -> None:
        if row.kind not in (KIND_EVENT, KIND_QUEUED, KIND_MARK):
            self._find(row.position, f"unknown kind {row.kind}")
        if (row.processed_at is None) != (row.kind == KIND_QUEUED):
            self._find(row.position, "has a time that its kind does not have, or lacks it")
        if row.processed_at is None:
            return
        if self._processed_at is not None and row.processed_at < self._processed_at:
            self._find(row.position, "its time steps back")
        self._processed_at = row.processed_at

    def _mark(self, row: StoredRow) -> None:
        if row.kind == KIND_QUEUED:
            self._waiting[row.position] = _Queued(row.event_id, row.event_type)
        if row.kind != KIND_MARK:
            return
        queued = self._waiting.pop(row.refers_position or 0, None)
        if queued is None:
            self._find(row.position, "marks an entry that does not wait")
        elif (queued.event_id, queued.event_type) != (row.event_id, row.event_type):
            self._find(row.position, "marks another event than it names")

    def _find(self, position: int, message: str, *, informational: bool = False) -> None:
        if len(self.findings) < _FINDINGS_MAX:
            self.findings.append(
                turn_pb2.Finding(seq=position, message=message, informational=informational)
            )


def stored(row: Any) -> StoredRow:
    """A row of `log_page_store.rows`."""
    return StoredRow(*(row[field] for field in StoredRow._fields))
