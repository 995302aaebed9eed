"""Recomputes a chain row by row and says what does not hold, and where."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from counterfoil.transcript.v1 import transcript_pb2 as pb
from counterfoil.types.v1.reference_pb2 import Head

from foundation.storage import SealBroken, SealRing
from services.transcript.chain import (
    StoredEntry,
    StoredHead,
    ThreadKey,
    content_opener,
    head_holds,
    is_redacted,
    open_provider_id,
)


class StoredName(NamedTuple):
    """A row of the id map. The provider's id is sealed, None when erased."""

    seq: int
    block_index: int
    operation_id: str
    event_id: str
    provider_tool_use_id: bytes | None


class Verification:
    """Feed all rows in order with `add`, then call `finish`."""

    def __init__(
        self, ring: SealRing, key: ThreadKey, redactions: Mapping[int, bytes], *, is_deleted: bool
    ) -> None:
        """`is_deleted`: the head is a tombstone, so that erased content is as it should be; so is
        that of entries with one of the seals of `redactions`."""
        self._ring = ring
        self._redactions = redactions
        self._key = key
        self._content = content_opener(ring, key)
        self._is_deleted = is_deleted
        self._result = pb.VerifyTranscriptResponse()
        self._seq = 0
        # What the next entry may stand behind: the stored digest, and the recomputed one where
        # they differ: a changed digest is thus blamed on its own row alone. Nothing behind a gap.
        self._previous: tuple[bytes, ...] = (b"",)

    def add(self, entry: StoredEntry, names: Sequence[StoredName]) -> None:
        """The next row in order of seq, with its rows of the id map."""
        if entry.seq != self._seq + 1:
            self._missing(self._seq + 1, entry.seq - 1)
            self._find(entry.seq, "link: its predecessor is missing", informational=True)
            self._previous = ()
        self._result.entries += 1
        body, own = self._open(entry)
        recomputed = self._link(entry, own)
        if body is not None:
            content = pb.EntryContent.FromString(body)
            self._names(entry.seq, content, names)
            if content.HasField("log_point"):
                self._result.vouches.add(seq=entry.seq, log_point=content.log_point)
        self._result.heads.add(seq=entry.seq, digest=recomputed)
        self._seq = entry.seq
        self._previous = tuple({entry.digest: None, recomputed: None})

    def finish(self, head: StoredHead, seal: bytes | None) -> pb.VerifyTranscriptResponse:
        """The result, after comparison with the head row (`seal` is None when there is no row)."""
        last = self._result.heads[-1] if self._result.heads else Head()
        if seal is None:
            if self._result.entries:
                self._find(0, "the head row is missing")
        else:
            self._compare(head, seal, last)
        self._result.head.CopyFrom(last)
        return self._result

    def _compare(self, head: StoredHead, seal: bytes, last: Head) -> None:
        if not head_holds(self._ring, self._key, head, seal):
            self._find(0, "the head row does not match its seal")
        if head.seq > last.seq:
            self._missing(last.seq + 1, head.seq)
        elif head.seq < last.seq:
            self._find(head.seq + 1, "the entry is beyond the head row")
        elif head.digest not in self._previous:
            self._find(0, "the head row has another digest than the last entry")

    def _open(self, entry: StoredEntry) -> tuple[bytes | None, bytes | None]:
        """Serialized content and the commitment to it; None where it is erased or broken."""
        if is_redacted(self._ring, self._key, entry, self._redactions.get(entry.seq)):
            self._find(entry.seq, "content: redacted", informational=True)
            return None, None
        if entry.content is None:
            self._find(entry.seq, "content: erased", informational=self._is_deleted)
            return None, None
        try:
            return self._content(entry.seq, entry.content)
        except SealBroken:
            self._find(entry.seq, "content: changed, moved, or sealed with an unknown key")
            return None, None

    def _link(self, entry: StoredEntry, own: bytes | None) -> bytes:
        """Check the link; returns the digest that the entry should have."""
        behind = [entry.digest_behind(self._key, previous) for previous in self._previous]
        if own is not None and own != entry.commitment:
            repaired = [entry.digest_behind(self._key, p, own) for p in self._previous]
            if entry.digest in repaired:
                self._find(entry.seq, "commitment: changed")
                return entry.digest
            self._find(entry.seq, "content: does not match its commitment")
        if not behind or entry.digest in behind:
            return entry.digest
        self._find(entry.seq, "header or digest: does not continue the chain")
        return behind[-1]

    def _names(self, seq: int, content: pb.EntryContent, names: Sequence[StoredName]) -> None:
        expected = {
            m.block_index: (m.operation_id, m.event_id, m.provider_tool_use_id)
            for m in content.mappings
        }
        if {n.block_index: self._opened_name(n) for n in names} != expected:
            self._find(seq, "id map: does not match the entry")

    def _opened_name(self, name: StoredName) -> tuple[str, str, str | None]:
        sealed = name.provider_tool_use_id
        provider_id = None
        if sealed is not None:
            try:
                provider_id = open_provider_id(
                    self._ring, self._key, name.seq, name.block_index, sealed
                )
            except SealBroken:
                provider_id = None
        return name.operation_id, name.event_id, provider_id

    def _missing(self, first: int, last: int) -> None:
        more = "" if first == last else f" (through {last})"
        self._find(first, f"the entry is missing{more}")

    def _find(self, seq: int, message: str, *, informational: bool = False) -> None:
        self._result.findings.add(seq=seq, message=message, informational=informational)
