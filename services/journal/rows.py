"""Stored operations, what of them is sealed, and how they look in the contract."""

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple

import msgspec
from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Attempt, ThreadRef
from counterfoil.types.v1.runtime_pb2 import ToolOwner

from foundation.errors import Failure
from foundation.projections import REDACTED
from foundation.storage import Record, SealBroken, SealRing
from services.journal.projection import Projected, digested
from services.journal.states import State


class ThreadKey(NamedTuple):
    """A thread's place; also the first three arguments of every statement."""

    workspace_id: str
    session_id: str
    thread_id: str

    @classmethod
    def of(cls, thread: ThreadRef) -> "ThreadKey":
        """The key of a reference."""
        return cls(thread.workspace_id, thread.session_id, thread.thread_id)


class Role(IntEnum):
    """What a row of `outcomes` is to its operation."""

    RECEIPT = 1
    DECIDED = 2
    LATE = 3
    NOTED = 4
    """The thread's history tells of the late outcome; the row has no body."""


class Source(IntEnum):
    """Who decided an outcome."""

    EXECUTOR = 1
    CLIENT = 2
    CLOSURE = 3


class Outcome(NamedTuple):
    """A raw outcome, serialized, and what the model sees of it; None for a receipt."""

    raw: bytes
    projected: Projected | None


class Kept(NamedTuple):
    """A row of `outcomes` to be."""

    operation_id: str
    role: Role
    source: Source
    raw: bytes | None
    """What is kept of the raw outcome; see `raws`."""
    projected: Projected | None

    @property
    def redactor(self) -> str:
        """Which redaction patterns the projection went through; empty for none."""
        return "" if self.projected is None else self.projected.redactor


@dataclass(frozen=True, slots=True)
class StoredOperation:
    """A row of `operations` with its decided outcome: its source and its sealed projection."""

    operation_id: str
    kind: int
    state: State
    turn_id: str
    round: int
    attempt_epoch: int
    attempt_number: int
    block_index: int
    owner: int
    tool_name: str
    tool_version: str
    nonce_digest: bytes | None
    started_at: datetime | None
    deadline_at: datetime | None
    snapshot_id: str
    answer_digest: bytes | None
    source: int | None
    projection: bytes | None
    redactor: str | None
    has_late_outcome: bool
    redaction: bytes | None = None
    """Sealed; see `Erased`. None where nothing was redacted."""


class Erased(msgspec.Struct, frozen=True, array_like=True):
    """What stays of a redacted projection."""

    digest: bytes
    artifact_ids: list[str]


_ERASED = msgspec.msgpack.Decoder(Erased)


def decode_erased(body: bytes) -> Erased:
    """An opened record of a redaction. Raises msgspec.DecodeError."""
    return _ERASED.decode(body)


def operation_of(
    row: Record, *, state: State | None = None, source: Source | None = None
) -> StoredOperation:
    """The operation in a row; `state` and `source` for rows that come without an outcome."""
    return StoredOperation(
        operation_id=row["operation_id"],
        kind=row["kind"],
        state=State(row["state"]) if state is None else state,
        turn_id=row["turn_id"],
        round=row["round"],
        attempt_epoch=row["attempt_epoch"],
        attempt_number=row["attempt_number"],
        block_index=row["block_index"],
        owner=row["owner"],
        tool_name=row["tool_name"].decode(),
        tool_version=row["tool_version"],
        nonce_digest=row["nonce_digest"],
        started_at=row["started_at"],
        deadline_at=row["deadline_at"],
        snapshot_id=row["snapshot_id"],
        answer_digest=row["answer_digest"],
        source=row["source"] if state is None else source,
        projection=row["projection"] if state is None else None,
        redactor=row["redactor"] if state is None else None,
        has_late_outcome=row["has_late_outcome"] if state is None else False,
    )


def message(operation: StoredOperation, projected: Projected | None) -> pb.Operation:
    """The operation as the contract has it, with the projection that belongs to it."""
    result = pb.Operation(
        id=operation.operation_id,
        kind=pb.OperationKind.ValueType(operation.kind),
        state=pb.OperationState.ValueType(operation.state),
        turn_id=operation.turn_id,
        round=operation.round,
        attempt=Attempt(epoch=operation.attempt_epoch, number=operation.attempt_number),
        block_index=operation.block_index,
        owner=ToolOwner.ValueType(operation.owner),
        tool_name=operation.tool_name,
        tool_version=operation.tool_version,
        snapshot_id=operation.snapshot_id,
        has_late_outcome=operation.has_late_outcome,
        model_call_outcome=_model_call_outcome(operation),
        is_redacted=operation.redaction is not None,
    )
    if operation.started_at is not None and operation.deadline_at is not None:
        result.started_at.FromDatetime(operation.started_at)
        result.deadline_at.FromDatetime(operation.deadline_at)
    if projected is not None:
        result.projection.body = projected.body
        result.projection.digest = projected.digest
        result.redactor = projected.redactor
    return result


def _model_call_outcome(operation: StoredOperation) -> pb.ModelCallOutcome.ValueType:
    if operation.kind != pb.OPERATION_KIND_MODEL_CALL or operation.state != State.COMPLETED:
        return pb.MODEL_CALL_OUTCOME_UNSPECIFIED
    if operation.answer_digest is None:
        return pb.MODEL_CALL_OUTCOME_FAILED
    return pb.MODEL_CALL_OUTCOME_ANSWERED


class Vault:
    """Seals and opens the bodies of one thread's operations. Opening raises CORRUPT."""

    def __init__(self, ring: SealRing, key: ThreadKey) -> None:
        self._ring = ring
        self._key = key

    def seal_input(self, operation_id: str, value: bytes) -> bytes:
        """A call's input."""
        return self._ring.seal(value, "operations", *self._key, operation_id)

    def open_input(self, operation_id: str, sealed: bytes) -> bytes:
        """Undo `seal_input`."""
        return self._open(sealed, operation_id, "operations", *self._key, operation_id)

    def sealed_raw(self, kept: Kept) -> bytes | None:
        """The raw outcome of a row to be."""
        if kept.raw is None:
            return None
        return self.seal_raw(kept.operation_id, kept.role, kept.raw)

    def seal_raw(self, operation_id: str, role: Role, raw: bytes) -> bytes:
        """What is kept of a raw outcome."""
        return self._ring.seal(raw, "outcomes.raw", *self._key, operation_id, role)

    def open_raw(self, operation_id: str, role: Role, sealed: bytes) -> bytes:
        """Undo `seal_raw`."""
        return self._open(sealed, operation_id, "outcomes.raw", *self._key, operation_id, role)

    def sealed_projection(self, kept: Kept) -> bytes | None:
        """The projection's body of a row to be; its digest is computed from it, never stored."""
        if kept.projected is None:
            return None
        identity = ("outcomes.projection", *self._key, kept.operation_id)
        return self._ring.seal(kept.projected.body, *identity)

    def open_projection(self, operation_id: str, sealed: bytes) -> bytes:
        """Undo `sealed_projection`."""
        identity = ("outcomes.projection", *self._key, operation_id)
        return self._open(sealed, operation_id, *identity)

    def seal_erased(self, operation_id: str, erased: Erased) -> bytes:
        """The record of a redaction."""
        identity = ("redactions", *self._key, operation_id)
        return self._ring.seal(msgspec.msgpack.encode(erased), *identity)

    def open_erased(self, operation_id: str, sealed: bytes) -> Erased:
        """Undo `seal_erased`."""
        identity = ("redactions", *self._key, operation_id)
        return decode_erased(self._open(sealed, operation_id, *identity))

    def show(self, operation: StoredOperation) -> pb.Operation:
        """The message of a stored operation, its projection opened."""
        if operation.redaction is not None:
            erased = self.open_erased(operation.operation_id, operation.redaction)
            return message(operation, Projected(REDACTED, erased.digest))
        sealed = operation.projection
        if sealed is None:
            return message(operation, None)
        body = self.open_projection(operation.operation_id, sealed)
        return message(operation, digested(body, operation.redactor or ""))

    def _open(self, sealed: bytes, operation_id: str, *identity: str | int) -> bytes:
        try:
            return self._ring.open(sealed, *identity)
        except SealBroken:
            raise Failure(
                reasons.ERROR_REASON_CORRUPT,
                f"operation {operation_id} has a body that does not open",
                metadata={"operation_id": operation_id},
            ) from None
