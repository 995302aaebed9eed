"""What the journal's tests do again and again."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import asyncpg
from counterfoil.files.v1 import artifacts_pb2
from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1.reference_pb2 import Attempt, Fence, ThreadRef
from counterfoil.types.v1.runtime_pb2 import TOOL_OWNER_PLATFORM_MANAGED

from foundation import projections
from foundation.artifacts import artifact_id
from foundation.storage import Database, SealRing
from services.journal.projecting import Projecting
from services.journal.redaction import NO_REDACTION, Redactor
from services.journal.service import Journal
from services.journal.staging import Staging
from services.journal.workers import Workers
from tests.services.journal import pictures

RING = SealRing("a", {"a": bytes(32)})
CONTEXT = cast("Any", None)
THREAD = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_1", thread_id="sthr_1")
FOREIGN = ThreadRef(workspace_id="wrkspc_2", session_id="sesn_1", thread_id="sthr_1")
NONCE = b"n" * 16
OTHER_NONCE = b"o" * 16
SCOPE = pb.RoundScope(turn_id="turn_1", round=2, attempt=Attempt(epoch=1, number=3))

PREPARED = pb.OPERATION_STATE_PREPARED
STARTED = pb.OPERATION_STATE_STARTED
RECEIVED = pb.OPERATION_STATE_RECEIVED
COMPLETED = pb.OPERATION_STATE_COMPLETED
AMBIGUOUS = pb.OPERATION_STATE_AMBIGUOUS
ABANDONED = pb.OPERATION_STATE_ABANDONED
TOOL = pb.OPERATION_KIND_TOOL_CALL
MODEL = pb.OPERATION_KIND_MODEL_CALL
ANSWERED = pb.MODEL_CALL_OUTCOME_ANSWERED
FAILED = pb.MODEL_CALL_OUTCOME_FAILED


def text(value: str, *, is_error: bool = False) -> pb.Outcome:
    content = json.dumps([{"type": "text", "text": value}]).encode()
    return pb.Outcome(content=content, is_error=is_error)


def seen(value: str) -> pb.Outcome:
    """A text with an image: an outcome with bytes to be stored."""
    blocks = (pictures.text(value), pictures.image(pictures.png()))
    return pb.Outcome(content=pictures.outcome(*blocks))


def new(
    operation_id: str, input: bytes = b'{"a":1.10}', index: int = 0, tool_name: str = "search"
) -> pb.NewOperation:
    return pb.NewOperation(
        id=operation_id,
        block_index=index,
        owner=TOOL_OWNER_PLATFORM_MANAGED,
        tool_name=tool_name,
        tool_version="1",
        input=input,
    )


def texts(operation: pb.Operation) -> list[str]:
    """What the model reads of an operation."""
    return list(projections.read(operation.projection.body).texts)


class Died(Exception):
    """The journal, in the middle of something."""


class Store:
    """The files service, as far as the journal sees it: what was staged, and how it fails."""

    def __init__(self) -> None:
        self.staged: dict[str, artifacts_pb2.StageArtifactRequest] = {}
        self.calls = 0
        self.failing: list[BaseException | None] = []
        """What the next calls raise, in order, None for nothing; the last one stays."""

    async def StageArtifact(
        self,
        request: artifacts_pb2.StageArtifactRequest,
        *,
        timeout: float,  # noqa: ASYNC109
    ) -> artifacts_pb2.StageArtifactResponse:
        assert timeout > 0
        self.calls += 1
        failing = self.failing.pop(0) if len(self.failing) > 1 else (self.failing or [None])[0]
        if failing is not None:
            raise failing
        sha256 = hashlib.sha256(request.body).digest()
        id = artifact_id(request.workspace_id, sha256, request.media_type, request.role)
        self.staged[id] = request
        return artifacts_pb2.StageArtifactResponse(artifact=artifacts_pb2.Artifact(id=id))


def projecting(
    store: Store | None = None,
    redactor: Redactor = NO_REDACTION,
    patience_s: float = 30.0,
    workers: Workers | None = None,
) -> Projecting:
    """Without `workers`, for outcomes that need none."""
    staging = Staging(cast("Any", store or Store()), patience_s)
    return Projecting(redactor, staging, workers or Workers())


@dataclass
class Bench:
    dsn: str
    db: Database
    service: Journal
    store: Store
    workers: Workers

    async def fence(self, epoch: int, turn_id: str = "turn_1") -> Sequence[pb.Operation]:
        request = pb.FenceRequest(fence=claim(epoch), turn_id=turn_id)
        return (await self.service.Fence(request, CONTEXT)).operations

    async def prepare(
        self, *operations: pb.NewOperation, epoch: int = 1, thread: ThreadRef = THREAD
    ) -> Sequence[pb.Operation]:
        request = pb.PrepareOperationsRequest(
            fence=claim(epoch, thread), scope=SCOPE, operations=operations
        )
        return (await self.service.PrepareOperations(request, CONTEXT)).operations

    async def start(
        self,
        operation_id: str = "op_1",
        nonce: bytes = NONCE,
        epoch: int = 1,
        thread: ThreadRef = THREAD,
    ) -> pb.Operation:
        request = pb.StartOperationRequest(
            fence=claim(epoch, thread), operation_id=operation_id, nonce=nonce, deadline_ms=60_000
        )
        return (await self.service.StartOperation(request, CONTEXT)).operation

    async def receive(self, outcome: pb.Outcome, operation_id: str = "op_1") -> pb.Operation:
        """Leave a receipt behind: the journal dies when it stores the outcome's bytes."""
        dying = Store()
        dying.failing = [Died()]
        request = pb.CompleteOperationRequest(
            thread=THREAD, operation_id=operation_id, nonce=NONCE, outcome=outcome
        )
        with suppress(Died):
            await Journal(self.db, RING, projecting(dying)).CompleteOperation(request, CONTEXT)
        (found,) = await self.get(operation_id)
        return found

    async def complete(
        self,
        outcome: pb.Outcome,
        operation_id: str = "op_1",
        nonce: bytes = NONCE,
        thread: ThreadRef = THREAD,
    ) -> pb.Operation:
        request = pb.CompleteOperationRequest(
            thread=thread, operation_id=operation_id, nonce=nonce, outcome=outcome
        )
        return (await self.service.CompleteOperation(request, CONTEXT)).operation

    async def start_model_call(
        self,
        operation_id: str = "op_m",
        nonce: bytes = NONCE,
        epoch: int = 1,
        turn_id: str = "turn_1",
    ) -> pb.Operation:
        scope = pb.RoundScope(turn_id=turn_id, round=2, attempt=SCOPE.attempt)
        request = pb.StartModelCallRequest(
            fence=claim(epoch),
            scope=scope,
            operation_id=operation_id,
            nonce=nonce,
            deadline_ms=60_000,
            request_digest=b"r" * 32,
            snapshot_id="snap_1",
        )
        return (await self.service.StartModelCall(request, CONTEXT)).operation

    async def complete_model_call(
        self,
        *calls: pb.NewOperation,
        outcome: "pb.ModelCallOutcome.ValueType" = ANSWERED,
        answer: bytes = b"a" * 32,
        operation_id: str = "op_m",
        epoch: int = 1,
    ) -> Sequence[pb.Operation]:
        is_answered = outcome == ANSWERED
        request = pb.CompleteModelCallRequest(
            fence=claim(epoch),
            scope=SCOPE,
            operation_id=operation_id,
            outcome=outcome,
            answer_digest=answer if is_answered else b"",
            failure="" if is_answered else "overloaded",
            calls=calls,
        )
        return (await self.service.CompleteModelCall(request, CONTEXT)).calls

    async def answer(
        self, outcome: pb.Outcome, *operation_ids: str, epoch: int = 1
    ) -> Sequence[pb.Operation]:
        answers = [
            pb.ClientAnswer(operation_id=id, outcome=outcome) for id in operation_ids or ("op_1",)
        ]
        request = pb.CompleteClientCallsRequest(fence=claim(epoch), scope=SCOPE, answers=answers)
        return (await self.service.CompleteClientCalls(request, CONTEXT)).operations

    async def close(
        self, *operation_ids: str, epoch: int = 1, kind: "pb.OperationKind.ValueType" = TOOL
    ) -> Sequence[pb.Operation]:
        request = pb.CloseOperationsRequest(
            fence=claim(epoch), scope=SCOPE, operation_ids=operation_ids or ("op_1",), kind=kind
        )
        return (await self.service.CloseOperations(request, CONTEXT)).operations

    async def get(self, *operation_ids: str, thread: ThreadRef = THREAD) -> Sequence[pb.Operation]:
        request = pb.GetOperationsRequest(thread=thread, operation_ids=operation_ids or ("op_1",))
        return (await self.service.GetOperations(request, CONTEXT)).operations

    async def late(self, thread: ThreadRef = THREAD) -> Sequence[pb.LateOutcome]:
        request = pb.ListLateOutcomesRequest(thread=thread)
        return (await self.service.ListLateOutcomes(request, CONTEXT)).late_outcomes

    async def note(self, *operation_ids: str, epoch: int = 1, thread: ThreadRef = THREAD) -> None:
        request = pb.NoteLateOutcomesRequest(
            fence=claim(epoch, thread), operation_ids=operation_ids or ("op_1",)
        )
        await self.service.NoteLateOutcomes(request, CONTEXT)

    async def inspect(self, thread: ThreadRef = THREAD) -> Sequence[pb.Operation]:
        request = pb.InspectOperationsRequest(thread=thread, reader="ops", purpose="why not")
        return (await self.service.InspectOperations(request, CONTEXT)).operations

    async def tombstone(self) -> None:
        await self.service.Tombstone(pb.TombstoneRequest(thread=THREAD), CONTEXT)

    async def sql(self, statement: str) -> Any:
        """Run one ordinary statement; returns the first value."""
        connection = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()


def claim(epoch: int, thread: ThreadRef = THREAD) -> Fence:
    return Fence(thread=thread, epoch=epoch)
