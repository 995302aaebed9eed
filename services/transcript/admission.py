"""Whether a writer may write: pure decisions over the head row."""

from counterfoil.transcript.v1 import transcript_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Head

from foundation.digests import DIGEST_BYTES
from foundation.errors import Failure, deleted, fenced, invalid
from services.transcript.chain import StoredHead


def admit(head: StoredHead, thread_id: str, epoch: int) -> None:
    """Raise DELETED or FENCED unless a writer with this epoch may write behind `head`."""
    if head.is_deleted:
        raise deleted(thread_id)
    if epoch < head.epoch_max:
        raise fenced(epoch, head.epoch_max)


def extend(head: StoredHead, expected: Head) -> None:
    """Raise HEAD_MISMATCH unless the writer knows the head that it extends."""
    if head.seq != expected.seq:
        raise Failure(
            reasons.ERROR_REASON_HEAD_MISMATCH,
            f"expected head {expected.seq}, found {head.seq}",
            metadata={"seq": str(head.seq)},
        )
    if head.digest != expected.digest:
        raise Failure(
            reasons.ERROR_REASON_HEAD_MISMATCH,
            f"expected head {expected.seq} with another digest",
            metadata={"seq": str(head.seq)},
        )


def check_shape(request: pb.AppendEntryRequest) -> None:
    """Raise INVALID_FIELD for an entry whose parts do not belong together."""
    head = request.expected_head
    if len(head.digest) != (DIGEST_BYTES if head.seq else 0):
        raise invalid("expected_head.digest", "a head has a digest of 32 bytes, an empty log none")
    is_answer = request.kind == pb.TRANSCRIPT_ENTRY_KIND_ANSWER
    if is_answer != request.HasField("attempt"):
        raise invalid("attempt", "an answer has an attempt, other entries have none")
    if request.content.mappings and not is_answer:
        raise invalid("content.mappings", "only an answer maps tool calls")
    indices = [mapping.block_index for mapping in request.content.mappings]
    if len(set(indices)) != len(indices):
        raise invalid("content.mappings", "a block index is named twice")
