"""Stored rows as messages of the contract; nothing passes that does not match its digest."""

from collections.abc import Mapping

from counterfoil.transcript.v1 import transcript_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Head

from foundation.errors import Failure
from foundation.storage import SealBroken, SealRing
from services.transcript.chain import (
    StoredEntry,
    StoredHead,
    ThreadKey,
    content_opener,
    head_holds,
    is_redacted,
)


def corrupt(seq: int, message: str) -> Failure:
    """Stored data does not hold; `seq` is 0 for the head row."""
    where = f"transcript entry {seq}" if seq else "the transcript's head row"
    return Failure(reasons.ERROR_REASON_CORRUPT, f"{where} {message}", metadata={"seq": str(seq)})


def head_message(head: StoredHead) -> Head:
    """A head as the contract has it."""
    return Head(seq=head.seq, digest=head.digest)


def check_head(ring: SealRing, key: ThreadKey, head: StoredHead, seal: bytes) -> None:
    """Raise CORRUPT unless the head row is as it was written."""
    if not head_holds(ring, key, head, seal):
        raise corrupt(0, "does not match its seal")


class EntryReader:
    """Reads stored entries of one thread into messages."""

    def __init__(
        self, ring: SealRing, key: ThreadKey, redactions: Mapping[int, bytes], *, is_deleted: bool
    ) -> None:
        """Content may be erased, then it is unset, only where the thread `is_deleted` or the entry
        has one of the seals of `redactions`."""
        self._ring = ring
        self._redactions = redactions
        self._key = key
        self._opened = content_opener(ring, key)
        self._is_deleted = is_deleted

    def read(self, entry: StoredEntry, previous: bytes | None, message: pb.Entry) -> None:
        """The entry behind the stored digest `previous` (None: there is no such row).

        Raises CORRUPT when a column does not match the chain or the content its commitment.
        """
        if previous is None and entry.seq > 1:
            raise corrupt(entry.seq - 1, "is missing")
        if entry.digest_behind(self._key, previous or b"") != entry.digest:
            raise corrupt(entry.seq, "does not match its digest")
        if entry.content is not None:
            show_entry(entry, self._content(entry, entry.content), message)
        elif self._is_deleted or is_redacted(
            self._ring, self._key, entry, self._redactions.get(entry.seq)
        ):
            show_entry(entry, None, message)
        else:
            raise corrupt(entry.seq, "has lost its content")

    def _content(self, entry: StoredEntry, sealed: bytes) -> bytes:
        try:
            body, committed = self._opened(entry.seq, sealed)
        except SealBroken:
            raise corrupt(entry.seq, "has content that does not open") from None
        if committed != entry.commitment:
            raise corrupt(entry.seq, "has content that does not match its digest")
        return body


def show_entry(entry: StoredEntry, body: bytes | None, message: pb.Entry) -> None:
    """Fill an empty message with the entry and its serialized content, which is trusted here."""
    message.id = entry.entry_id
    message.seq = entry.seq
    message.digest = entry.digest
    message.kind = pb.TranscriptEntryKind.ValueType(entry.kind)
    message.turn_id = entry.turn_id
    message.round = entry.round
    message.epoch = entry.epoch
    if entry.attempt_epoch:
        message.attempt.epoch = entry.attempt_epoch
        message.attempt.number = entry.attempt_number
    if body is not None:
        message.content.SetInParent()
        message.content.MergeFromString(body)
