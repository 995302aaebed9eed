"""How a provider call ends. Its answer is in the transcript, which decided before us."""

from counterfoil.journal.v1 import journal_pb2 as pb

from foundation.digests import DIGEST_BYTES
from foundation.errors import invalid
from services.journal.drafts import check_kind, mismatch, refused
from services.journal.rows import StoredOperation
from services.journal.states import Effect, State, Step, decide

ENDED_BEFORE = -1
"""There is nothing to end."""


def check_end(request: pb.CompleteModelCallRequest) -> None:
    """Raise INVALID_FIELD for an end whose parts do not belong together."""
    is_answered = request.outcome == pb.MODEL_CALL_OUTCOME_ANSWERED
    if is_answered and len(request.answer_digest) != DIGEST_BYTES:
        raise invalid("answer_digest", "an answer has a digest of 32 bytes")
    if is_answered and request.failure:
        raise invalid("failure", "an answered call has no failure")
    if not is_answered and (request.answer_digest or request.calls):
        raise invalid("outcome", "a failed call has no answer and no calls")


def state_before(operation: StoredOperation | None, request: pb.CompleteModelCallRequest) -> int:
    """The state from which the call is ended now; ENDED_BEFORE when a repeat finds it ended.

    Raises DIGEST_MISMATCH for another answer, OPERATION_REFUSED for a failure after an answer.
    """
    if operation is None:
        return State.ABSENT
    check_kind(operation, pb.OPERATION_KIND_MODEL_CALL)
    has_answer = operation.answer_digest is not None
    if request.outcome == pb.MODEL_CALL_OUTCOME_ANSWERED:
        if has_answer and operation.answer_digest != request.answer_digest:
            raise mismatch(operation.operation_id, "answer")
        return ENDED_BEFORE if has_answer else operation.state
    if has_answer:
        raise refused(operation.operation_id, "was answered")
    effect, _ = decide(Step.MODEL_CALL_FAILED, operation.state)
    return operation.state if effect is Effect.MOVE else ENDED_BEFORE
