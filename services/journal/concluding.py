"""What executors say about the operations that they started.

A receipt is the raw outcome, journaled. An outcome that refers to bytes has one before the bytes
are stored, so that a death in between projects again and never runs the tool again; one that does
not is committed at once.
"""

from counterfoil.journal.v1 import journal_pb2 as pb

from foundation.errors import invalid
from foundation.storage import Database, SealRing
from services.journal import drafts
from services.journal.drafts import Draft, Outcome
from services.journal.nonces import check_nonce, nonce_digest
from services.journal.projecting import Projecting
from services.journal.records import TRIES, Records, contended
from services.journal.rows import Source, ThreadKey, message, operation_of
from services.journal.states import State, Step


class Concluder:
    """Takes outcomes, and receipts where they are needed."""

    def __init__(self, db: Database, ring: SealRing, projecting: Projecting) -> None:
        self._db = db
        self._ring = ring
        self._projecting = projecting

    async def complete(self, request: pb.CompleteOperationRequest) -> pb.Operation:
        """The operation as it stands behind an outcome."""
        key, id, raw = ThreadKey.of(request.thread), request.operation_id, _raw(request)
        planned = await self._projecting.plan(key, request.outcome)
        if not planned.plan.blobs:
            given = Outcome(raw, planned.plan.projected)
            first = drafts.conclude_started(Step.COMPLETE, id, given)
            return await self._say(Step.COMPLETE, request, given, first)
        receipt = Outcome(raw, None)
        first = drafts.conclude_started(Step.RECEIVE, id, receipt)
        received = await self._say(Step.RECEIVE, request, receipt, first)
        if received.state != State.RECEIVED:
            return received
        given = Outcome(raw, (await self._projecting.keep(key, {id: planned}))[id])
        first = drafts.conclude_received(id, given)
        return await self._say(Step.COMPLETE, request, given, first)

    async def _say(
        self, step: Step, request: pb.CompleteOperationRequest, given: Outcome, first: Draft
    ) -> pb.Operation:
        """Write the draft `first`; if the operation is elsewhere, read and decide."""
        records = Records(self._db, self._ring, ThreadKey.of(request.thread))
        id, nonce = request.operation_id, nonce_digest(request.operation_id, request.nonce)
        failpoint = "journal.receive" if step is Step.RECEIVE else "journal.complete"
        rows = await records.write(failpoint, first, nonce_digest=nonce)
        if rows is not None:
            state = first.moves[0].after
            return message(
                operation_of(rows[0], state=state, source=Source.EXECUTOR), given.projected
            )
        for _ in range(TRIES):
            seen = await records.see([id])
            seen.admit_nonce(records.key)
            operation = seen.existing(id, pb.OPERATION_KIND_TOOL_CALL)
            check_nonce(operation, nonce)
            draft = drafts.conclude(step, operation, given, await records.raws([id]))
            if draft.is_empty:
                return records.vault.show(operation)
            if await records.write(failpoint, draft, nonce_digest=nonce) is not None:
                return records.vault.show((await records.see([id])).operations[id])
        raise contended(records.key)


def _raw(request: pb.CompleteOperationRequest) -> bytes:
    if request.outcome.HasField("denial"):
        raise invalid("outcome.denial", "only a client's answer is a denial")
    return request.outcome.SerializeToString(deterministic=True)
