"""Stored rows as messages of the contract; nothing passes that does not match its digest."""

from counterfoil.transcript.v1 import transcript_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Attempt, Head

from foundation.errors import Failure
from foundation.storage import SealBroken, SealRing
from services.transcript.chain import StoredEntry, StoredHead, ThreadKey, head_holds, open_content


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


def read_entry(
    ring: SealRing, key: ThreadKey, entry: StoredEntry, previous: bytes | None, *, is_deleted: bool
) -> pb.Entry:
    """The entry behind the stored digest `previous` (None: there is no such row).

    Raises CORRUPT when a column does not match the chain or the content its commitment. Content is
    unset only when the thread `is_deleted`.
    """
    if previous is None and entry.seq > 1:
        raise corrupt(entry.seq - 1, "is missing")
    if entry.digest_behind(key, previous or b"") != entry.digest:
        raise corrupt(entry.seq, "does not match its digest")
    if entry.content is not None:
        return entry_message(entry, _content(ring, key, entry, entry.content))
    if not is_deleted:
        raise corrupt(entry.seq, "has lost its content")
    return entry_message(entry, None)


def entry_message(entry: StoredEntry, body: bytes | None) -> pb.Entry:
    """The entry with its serialized content, which is trusted here."""
    message = pb.Entry(
        id=entry.entry_id,
        seq=entry.seq,
        digest=entry.digest,
        kind=pb.TranscriptEntryKind.ValueType(entry.kind),
        turn_id=entry.turn_id,
        round=entry.round,
        epoch=entry.epoch,
    )
    if entry.attempt_epoch:
        attempt = Attempt(epoch=entry.attempt_epoch, number=entry.attempt_number)
        message.attempt.CopyFrom(attempt)
    if body is not None:
        message.content.SetInParent()
        message.content.MergeFromString(body)
    return message


def _content(ring: SealRing, key: ThreadKey, entry: StoredEntry, sealed: bytes) -> bytes:
    try:
        body, committed = open_content(ring, key, entry.seq, sealed)
    except SealBroken:
        raise corrupt(entry.seq, "has content that does not open") from None
    if committed != entry.commitment:
        raise corrupt(entry.seq, "has content that does not match its digest")
    return body
