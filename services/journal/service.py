"""The journal's gRPC surface."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from counterfoil.files.v1 import artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.journal.v1.journal_pb2_grpc import (
    JournalServiceServicer,
    add_JournalServiceServicer_to_server,
)
from counterfoil.types.v1.reference_pb2 import Fence as Claim

from foundation import ids
from foundation.bootstrap import Kernel
from foundation.errors import invalid
from foundation.rpc import context as call
from foundation.storage import Database, Record, SealRing
from services.journal import drafts, export_service, store
from services.journal.concluding import Concluder
from services.journal.copying import Copier
from services.journal.drafts import Draft, Outcome, check_kind
from services.journal.erasing import Eraser
from services.journal.model_calls import check_end, state_before
from services.journal.nonces import nonce_digest, repeats_start
from services.journal.projecting import Projecting
from services.journal.projection import Projected
from services.journal.records import TRIES, EndedCall, Records, Seen, contended, prepared
from services.journal.redaction import load
from services.journal.references import References
from services.journal.rows import Role, Source, ThreadKey, message, operation_of
from services.journal.staging import Staging
from services.journal.states import State, Step
from services.journal.workers import Workers

_LATE_MAX = 16
_TOOL_CALL = pb.OPERATION_KIND_TOOL_CALL
_MODEL_CALL = pb.OPERATION_KIND_MODEL_CALL


async def start(kernel: Kernel) -> None:
    """Serve the journal in this process."""
    db = await kernel.database("journal")
    artifacts = artifacts_pb2_grpc.ArtifactServiceStub(kernel.channel("files"))
    workers = Workers()
    kernel.watch(workers.close)
    redactor = load(kernel.settings.redaction_file)
    projecting = Projecting(redactor, Staging(artifacts), workers)
    kernel.register(add_JournalServiceServicer_to_server, Journal(db, kernel.ring, projecting))
    export_service.register(kernel, db)


class Journal(JournalServiceServicer):
    """Operations in, operations out; `states` decides, `drafts` says what is written.

    Most calls find what they expect, and are one statement. The others read, decide, and write what
    holds only if nothing changed in between, until it did not.
    """

    def __init__(self, db: Database, ring: SealRing, projecting: Projecting) -> None:
        self._db = db
        self._ring = ring
        self._projecting = projecting
        self._concluder = Concluder(db, ring, projecting)

    async def Fence(self, request: pb.FenceRequest, context: object) -> pb.FenceResponse:
        records, epoch = self._records(request.fence), request.fence.epoch
        for _ in range(TRIES):
            async with self._db.commit("journal.fence") as connection:
                arguments = (*records.key, epoch, request.turn_id)
                rows = None
                if await connection.fetch(store.FENCE, *arguments):
                    rows = await connection.fetch(store.LIST, *records.key, request.turn_id)
            if rows is not None:
                return pb.FenceResponse(operations=await records.shown(rows))
            (await records.see([])).admit(records.key, epoch)
        raise contended(records.key)

    async def PrepareOperations(
        self, request: pb.PrepareOperationsRequest, context: object
    ) -> pb.PrepareOperationsResponse:
        _check_distinct([o.id for o in request.operations], "operations")
        records, epoch = self._records(request.fence), request.fence.epoch
        for _ in range(TRIES):
            made = await records.prepare(
                "journal.prepare", epoch, request.scope, request.operations
            )
            if made is not None:
                shown = await self._prepared(records, request.scope, request.operations, made)
                return pb.PrepareOperationsResponse(operations=shown)
            (await records.see([])).admit(records.key, epoch)
        raise contended(records.key)

    async def StartOperation(
        self, request: pb.StartOperationRequest, context: object
    ) -> pb.StartOperationResponse:
        records, epoch, id = self._records(request.fence), request.fence.epoch, request.operation_id
        nonce = nonce_digest(id, request.nonce)
        for _ in range(TRIES):
            rows = await self._db.commit_grouped(
                "journal.start", store.START, *records.key, epoch, id, nonce, request.deadline_ms
            )
            if rows:
                return pb.StartOperationResponse(operation=message(operation_of(rows[0]), None))
            seen = await records.see([id])
            seen.admit(records.key, epoch)
            operation = seen.existing(id, _TOOL_CALL)
            if repeats_start(Step.START, operation, nonce):
                return pb.StartOperationResponse(operation=records.vault.show(operation))
        raise contended(records.key)

    async def CompleteOperation(
        self, request: pb.CompleteOperationRequest, context: object
    ) -> pb.CompleteOperationResponse:
        return pb.CompleteOperationResponse(operation=await self._concluder.complete(request))

    async def StartModelCall(
        self, request: pb.StartModelCallRequest, context: object
    ) -> pb.StartModelCallResponse:
        records, epoch, id = self._records(request.fence), request.fence.epoch, request.operation_id
        nonce = nonce_digest(id, request.nonce)
        for _ in range(TRIES):
            rows = await self._start_model_call(records, request, nonce)
            if rows:
                return pb.StartModelCallResponse(operation=message(operation_of(rows[0]), None))
            seen = await records.see([id])
            seen.admit(records.key, epoch)
            operation = seen.operations.get(id)
            if operation is None:
                continue
            check_kind(operation, _MODEL_CALL)
            if repeats_start(Step.START_MODEL_CALL, operation, nonce):
                return pb.StartModelCallResponse(operation=records.vault.show(operation))
        raise contended(records.key)

    async def CompleteModelCall(
        self, request: pb.CompleteModelCallRequest, context: object
    ) -> pb.CompleteModelCallResponse:
        check_end(request)
        _check_distinct([c.id for c in request.calls], "calls")
        records, epoch = self._records(request.fence), request.fence.epoch
        before: int = State.STARTED
        for _ in range(TRIES):
            ended = EndedCall(request.operation_id, before, request.answer_digest, request.failure)
            made = await records.prepare(
                "journal.complete_model_call", epoch, request.scope, request.calls, ended
            )
            if made is not None:
                shown = await self._prepared(records, request.scope, request.calls, made)
                return pb.CompleteModelCallResponse(calls=shown)
            seen = await records.see([request.operation_id])
            seen.admit(records.key, epoch)
            before = state_before(seen.operations.get(request.operation_id), request)
        raise contended(records.key)

    async def CompleteClientCalls(
        self, request: pb.CompleteClientCallsRequest, context: object
    ) -> pb.CompleteClientCallsResponse:
        wanted = [a.operation_id for a in request.answers]
        _check_distinct(wanted, "answers")
        records, epoch = self._records(request.fence), request.fence.epoch
        given = await self._given(records.key, request.answers)
        failpoint = "journal.complete_client_calls"
        draft = Draft()
        for id, outcome in given.items():
            assumed = prepared(request.scope, pb.NewOperation(id=id))
            drafts.answer(draft, id, assumed, outcome, {})
        rows = await records.write(failpoint, draft, epoch=epoch)
        if rows is not None:
            shown = _completed(rows, given, Source.CLIENT)
            return pb.CompleteClientCallsResponse(operations=[shown[id] for id in wanted])

        async def decide_again(seen: Seen, raws: drafts.Raws) -> Draft:
            draft = Draft()
            for id, outcome in given.items():
                operation = seen.operations.get(id)
                if operation is not None:
                    check_kind(operation, _TOOL_CALL)
                drafts.answer(draft, id, operation, outcome, raws)
            return draft

        shown = await self._settle(
            records, failpoint, wanted, decide_again, epoch, request.scope, _TOOL_CALL
        )
        return pb.CompleteClientCallsResponse(operations=shown)

    async def CloseOperations(
        self, request: pb.CloseOperationsRequest, context: object
    ) -> pb.CloseOperationsResponse:
        wanted = list(request.operation_ids)
        _check_distinct(wanted, "operation_ids")
        records = self._records(request.fence)
        receipts: dict[str, Projected] = {}

        async def decide_closures(seen: Seen, raws: drafts.Raws) -> Draft:
            unknown = {
                id: raws[id, Role.RECEIPT]
                for id, operation in seen.operations.items()
                if operation.state is State.RECEIVED and id not in receipts
            }
            receipts.update(await self._projecting.received(records.key, unknown))
            draft = Draft()
            for id in wanted:
                drafts.close(draft, id, seen.operations.get(id), request.kind, receipts, raws)
            return draft

        shown = await self._settle(
            records,
            "journal.close",
            wanted,
            decide_closures,
            request.fence.epoch,
            request.scope,
            request.kind,
        )
        return pb.CloseOperationsResponse(operations=shown)

    async def GetOperations(
        self, request: pb.GetOperationsRequest, context: object
    ) -> pb.GetOperationsResponse:
        records = Records(self._db, self._ring, ThreadKey.of(request.thread))
        found = (await records.see(request.operation_ids)).operations
        shown = [records.vault.show(found[id]) for id in request.operation_ids if id in found]
        return pb.GetOperationsResponse(operations=shown)

    async def ListLateOutcomes(
        self, request: pb.ListLateOutcomesRequest, context: object
    ) -> pb.ListLateOutcomesResponse:
        records = Records(self._db, self._ring, ThreadKey.of(request.thread))
        shown = await self._projecting.late(records.key, await records.late(_LATE_MAX))
        return pb.ListLateOutcomesResponse(late_outcomes=shown)

    async def NoteLateOutcomes(
        self, request: pb.NoteLateOutcomesRequest, context: object
    ) -> pb.NoteLateOutcomesResponse:
        wanted = list(request.operation_ids)
        _check_distinct(wanted, "operation_ids")
        records, epoch = self._records(request.fence), request.fence.epoch
        raws, draft = await records.raws(wanted), Draft()
        for id in wanted:
            draft.note(id, raws)
        for _ in range(TRIES):
            seen = await records.see(wanted)
            seen.admit(records.key, epoch)
            for id in wanted:
                drafts.check_late(id, seen.operations.get(id))
            if await records.write("journal.note_late_outcomes", draft, epoch=epoch) is not None:
                return pb.NoteLateOutcomesResponse()
        raise contended(records.key)

    async def CopyOperations(
        self, request: pb.CopyOperationsRequest, context: object
    ) -> pb.CopyOperationsResponse:
        return await Copier(self._db, self._ring).copy(request)

    async def InspectOperations(
        self, request: pb.InspectOperationsRequest, context: object
    ) -> pb.InspectOperationsResponse:
        records = Records(self._db, self._ring, ThreadKey.of(request.thread))
        async with self._db.commit("journal.inspect") as connection:
            rows = await connection.fetch(store.LIST, *records.key, None)
            await connection.execute(
                store.NOTE_ACCESS,
                *records.key,
                ids.new("access"),
                call.current().request_id,
                request.reader,
                request.purpose,
                len(rows),
            )
        return pb.InspectOperationsResponse(operations=await records.shown(rows))

    async def RedactOperation(
        self, request: pb.RedactOperationRequest, context: object
    ) -> pb.RedactOperationResponse:
        return await Eraser(self._db, self._ring).redact(request)

    async def CollectReferences(
        self, request: pb.CollectReferencesRequest, context: object
    ) -> pb.CollectReferencesResponse:
        return await References(self._db, self._ring).collect(request)

    async def Tombstone(
        self, request: pb.TombstoneRequest, context: object
    ) -> pb.TombstoneResponse:
        key = ThreadKey.of(request.thread)
        async with self._db.commit("journal.tombstone") as connection:
            for statement in (
                store.BURY,
                store.CLOSE_ALL,
                store.ERASE_OPERATIONS,
                store.ERASE_OUTCOMES,
            ):
                await connection.execute(statement, *key)
        return pb.TombstoneResponse()

    def _records(self, claim: Claim) -> Records:
        return Records(self._db, self._ring, ThreadKey.of(claim.thread))

    async def _given(
        self, key: ThreadKey, answers: Sequence[pb.ClientAnswer]
    ) -> dict[str, Outcome]:
        """Clients' answers by operation, ready to be committed. The ledger keeps them: they need no
        receipt."""
        outcomes = {a.operation_id: a.outcome for a in answers}
        projected = await self._projecting.projected(key, outcomes)
        return {
            id: Outcome(one.SerializeToString(deterministic=True), projected[id])
            for id, one in outcomes.items()
        }

    async def _prepared(
        self,
        records: Records,
        scope: pb.RoundScope,
        calls: Sequence[pb.NewOperation],
        made: frozenset[str],
    ) -> list[pb.Operation]:
        """The calls as they stand: new ones as written, others as found."""
        shown = {c.id: message(prepared(scope, c), None) for c in calls if c.id in made}
        older = {c.id: c.input for c in calls if c.id not in made}
        if older:
            seen, _ = await asyncio.gather(records.see(list(older)), records.check_inputs(older))
            for operation in seen.operations.values():
                check_kind(operation, _TOOL_CALL)
                shown[operation.operation_id] = records.vault.show(operation)
        return [shown[c.id] for c in calls]

    async def _start_model_call(
        self, records: Records, request: pb.StartModelCallRequest, nonce: bytes
    ) -> list[Record]:
        scope = request.scope
        return await self._db.commit_grouped(
            "journal.start_model_call",
            store.START_MODEL_CALL,
            *records.key,
            request.fence.epoch,
            request.operation_id,
            nonce,
            request.deadline_ms,
            scope.turn_id,
            scope.round,
            scope.attempt.epoch,
            scope.attempt.number,
            request.request_digest,
            request.snapshot_id,
        )

    async def _settle(
        self,
        records: Records,
        failpoint: str,
        wanted: Sequence[str],
        decide_draft: Callable[[Seen, drafts.Raws], Awaitable[Draft]],
        epoch: int,
        scope: pb.RoundScope,
        kind: int,
    ) -> list[pb.Operation]:
        """Read, decide and write until nobody else was faster; the operations as they stand."""
        for _ in range(TRIES):
            seen = await records.see(wanted)
            seen.admit(records.key, epoch)
            draft = await decide_draft(seen, await records.raws(wanted))
            if draft.is_empty and epoch == seen.epoch_max:
                return [records.vault.show(seen.operations[id]) for id in wanted]
            written = await records.write(failpoint, draft, epoch=epoch, scope=scope, kind=kind)
            if written is not None:
                after = (await records.see(wanted)).operations
                return [records.vault.show(after[id]) for id in wanted]
        raise contended(records.key)


def _completed(
    rows: Sequence[Record], outcomes: dict[str, Outcome], source: Source
) -> dict[str, pb.Operation]:
    shown: dict[str, pb.Operation] = {}
    for row in rows:
        operation = operation_of(row, state=State.COMPLETED, source=source)
        projected = outcomes[operation.operation_id].projected
        shown[operation.operation_id] = message(operation, projected)
    return shown


def _check_distinct(names: Sequence[str], path: str) -> None:
    if len(set(names)) != len(names):
        raise invalid(path, "an operation is named twice")
