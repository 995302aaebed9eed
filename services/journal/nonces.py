"""Who may repeat a start, and who may say how it ended: the holder of its nonce.

The nonce itself is never stored, and its digest names the operation, so that it is worth nothing
elsewhere.
"""

import hmac

from foundation import digests
from services.journal.drafts import refused
from services.journal.rows import StoredOperation
from services.journal.states import Effect, Step, decide


def nonce_digest(operation_id: str, nonce: bytes) -> bytes:
    """What is stored of a nonce; 32 bytes."""
    return digests.digest("counterfoil.journal.nonce.v1", operation_id.encode(), nonce)


def check_nonce(operation: StoredOperation, digest: bytes) -> None:
    """Raise OPERATION_REFUSED unless the operation was started under this nonce."""
    stored = operation.nonce_digest
    if stored is None or not hmac.compare_digest(stored, digest):
        raise refused(operation.operation_id, "was not started under this nonce")


def repeats_start(step: Step, operation: StoredOperation, digest: bytes) -> bool:
    """Whether the caller started the operation before; False when it may start it now.

    Raises OPERATION_REFUSED when somebody else started it, or it was closed.
    """
    effect, _ = decide(step, operation.state)
    if effect is Effect.MOVE:
        return False
    if effect is Effect.REFUSE:
        raise refused(operation.operation_id, f"is {operation.state.name.lower()}")
    check_nonce(operation, digest)
    return True
