"""Reads and writes of operations: sealed on the way in, opened on the way out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure, deleted, fenced, not_found
from foundation.storage import Database, Record, SealRing
from services.journal import redaction_store, store
from services.journal.drafts import Draft, Move, check_kind, mismatch
from services.journal.projection import Projected
from services.journal.rows import Kept, Role, StoredOperation, ThreadKey, Vault, operation_of
from services.journal.states import State

TRIES = 8
"""How often a write that met another one reads and decides again."""


def contended(key: ThreadKey) -> Failure:
    """Other writers were faster every time."""
    return Failure(
        reasons.ERROR_REASON_UNAVAILABLE, f"thread {key.thread_id} is written by many at once"
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """A thread's fence and some of its operations, of one moment."""

    epoch_max: int
    is_deleted: bool
    operations: Mapping[str, StoredOperation]

    def admit(self, key: ThreadKey, epoch: int) -> None:
        """Raise DELETED or FENCED unless a writer with this epoch may write."""
        if self.is_deleted:
            raise deleted(key.thread_id)
        if epoch < self.epoch_max:
            raise fenced(epoch, self.epoch_max)

    def existing(self, operation_id: str, kind: int) -> StoredOperation:
        """The operation; raises NOT_FOUND, and OPERATION_REFUSED for one of another kind."""
        operation = self.operations.get(operation_id)
        if operation is None:
            raise not_found("operation", operation_id)
        check_kind(operation, kind)
        return operation

    def admit_nonce(self, key: ThreadKey) -> None:
        """Raise DELETED; whoever holds a nonce needs no epoch."""
        if self.is_deleted:
            raise deleted(key.thread_id)


class Late(NamedTuple):
    """An outcome, serialized, that came after its call had been declared ambiguous."""

    operation_id: str
    tool_name: str
    raw: bytes

    def show(self, shown: Projected) -> pb.LateOutcome:
        """The message, with what the model may see."""
        return pb.LateOutcome(
            operation_id=self.operation_id,
            tool_name=self.tool_name,
            projection=pb.Projection(body=shown.body, digest=shown.digest),
        )


class Records:
    """One thread's operations."""

    def __init__(self, db: Database, ring: SealRing, key: ThreadKey) -> None:
        self._db = db
        self.key = key
        self.vault = Vault(ring, key)

    async def see(self, ids: Sequence[str]) -> Seen:
        """The fence and those of the operations that exist."""
        rows = await self._db.fetch(store.READ, *self.key, list(ids))
        first = rows[0]
        operations = await self.with_redactions(
            [operation_of(row) for row in rows if row["operation_id"] is not None]
        )
        return Seen(
            epoch_max=first["epoch_max"] or 0,
            is_deleted=bool(first["is_deleted"]),
            operations={operation.operation_id: operation for operation in operations},
        )

    async def with_redactions(
        self, operations: Sequence[StoredOperation]
    ) -> Sequence[StoredOperation]:
        """The operations; those whose outcome has no body, with the record of its redaction."""
        erased = [one.operation_id for one in operations if one.source and one.projection is None]
        if not erased:
            return operations
        found = await redaction_store.redactions(self._db, self.key, erased)
        return [replace(one, redaction=found.get(one.operation_id)) for one in operations]

    async def shown(self, rows: Sequence[Record]) -> list[pb.Operation]:
        """Operations in rows that have their outcomes, as the contract has them."""
        found = await self.with_redactions([operation_of(row) for row in rows])
        return [self.vault.show(one) for one in found]

    async def raws(self, ids: Sequence[str]) -> dict[tuple[str, Role], bytes]:
        """What is kept of the raw outcomes of operations."""
        rows = await self._db.fetch(store.RAWS, *self.key, list(ids))
        found: dict[tuple[str, Role], bytes] = {}
        for row in rows:
            id, role = row["operation_id"], Role(row["role"])
            found[id, role] = self.vault.open_raw(id, role, row["raw"])
        return found

    async def late(self, count_max: int) -> list[Late]:
        """Late outcomes of ambiguous calls that no history tells of yet, oldest first."""
        rows = await self._db.fetch(store.LATE, *self.key, count_max)
        return [
            Late(
                row["operation_id"],
                row["tool_name"].decode(),
                self.vault.open_raw(row["operation_id"], Role.LATE, row["raw"]),
            )
            for row in rows
        ]

    async def check_inputs(self, calls: Mapping[str, bytes]) -> None:
        """Raise DIGEST_MISMATCH for a call that was prepared with another input.

        One that was closed or answered before it was prepared has none.
        """
        for row in await self._db.fetch(store.INPUTS, *self.key, list(calls)):
            id = row["operation_id"]
            if self.vault.open_input(id, row["input"]) != calls[id]:
                raise mismatch(id, "input")

    async def write(
        self,
        failpoint: str,
        draft: Draft,
        *,
        epoch: int = 0,
        nonce_digest: bytes | None = None,
        scope: pb.RoundScope | None = None,
        kind: int = pb.OPERATION_KIND_TOOL_CALL,
    ) -> list[Record] | None:
        """Write a draft, all of it; None when somebody else was faster, or the fence refuses.

        Returns the rows of the operations that existed, as they were before. `scope` and `kind`
        are those of births.
        """
        if draft.one is not None:
            return await self._write_one(failpoint, *draft.one, epoch, nonce_digest) or None
        vault, scope = self.vault, scope or pb.RoundScope()
        rows = await self._db.commit_grouped(
            failpoint,
            store.DECIDE,
            *self.key,
            epoch,
            [move.operation_id for move in draft.moves],
            [move.before for move in draft.moves],
            [move.after for move in draft.moves],
            nonce_digest,
            [id for id, _ in draft.births],
            [state for _, state in draft.births],
            kind,
            scope.turn_id,
            scope.round,
            scope.attempt.epoch,
            scope.attempt.number,
            [k.operation_id for k in draft.kept],
            [k.role for k in draft.kept],
            [k.source for k in draft.kept],
            [vault.sealed_raw(k) for k in draft.kept],
            [vault.sealed_projection(k) for k in draft.kept],
            [k.redactor for k in draft.kept],
            [s.operation_id for s in draft.shortened],
            [s.role for s in draft.shortened],
            [vault.seal_raw(s.operation_id, s.role, s.raw) for s in draft.shortened],
            weight=sum(len(k.raw or b"") for k in draft.kept),
        )
        if not rows or rows[0]["born"] < len(draft.births):
            return None
        return [row for row in rows if row["operation_id"] is not None]

    async def _write_one(
        self, failpoint: str, move: Move, kept: Kept, epoch: int, nonce_digest: bytes | None
    ) -> list[Record]:
        return await self._db.commit_grouped(
            failpoint,
            store.DECIDE_ONE,
            *self.key,
            epoch,
            move.operation_id,
            move.before,
            move.after,
            nonce_digest,
            kept.role,
            kept.source,
            self.vault.sealed_raw(kept),
            self.vault.sealed_projection(kept),
            kept.redactor,
            weight=len(kept.raw or b""),
        )

    async def prepare(
        self,
        failpoint: str,
        epoch: int,
        scope: pb.RoundScope,
        calls: Sequence[pb.NewOperation],
        ended: "EndedCall | None" = None,
    ) -> frozenset[str] | None:
        """Record tool calls, and the end of the provider call that caused them.

        Returns the ids that are new; None when the provider call is not in the state in which it
        was seen, or the fence refuses.
        """
        end = ended or _NO_CALL
        rows = await self._db.commit_grouped(
            failpoint,
            store.PREPARE,
            *self.key,
            epoch,
            end.operation_id,
            end.before,
            end.answer_digest or None,
            end.failure,
            scope.turn_id,
            scope.round,
            scope.attempt.epoch,
            scope.attempt.number,
            [call.id for call in calls],
            [call.block_index for call in calls],
            [call.owner for call in calls],
            [call.tool_name.encode() for call in calls],
            [call.tool_version for call in calls],
            [self.vault.seal_input(call.id, call.input) for call in calls],
            weight=sum(len(call.input) for call in calls),
        )
        if not rows:
            return None
        return frozenset(row["operation_id"] for row in rows if row["operation_id"] is not None)


@dataclass(frozen=True, slots=True)
class EndedCall:
    """How a provider call ended, and the state in which it was seen (-1: there is no call)."""

    operation_id: str
    before: int
    answer_digest: bytes
    failure: str


_NO_CALL = EndedCall("", -1, b"", "")


def prepared(scope: pb.RoundScope, call: pb.NewOperation) -> StoredOperation:
    """The operation that `Records.prepare` has just made of a call."""
    return StoredOperation(
        operation_id=call.id,
        kind=pb.OPERATION_KIND_TOOL_CALL,
        state=State.PREPARED,
        turn_id=scope.turn_id,
        round=scope.round,
        attempt_epoch=scope.attempt.epoch,
        attempt_number=scope.attempt.number,
        block_index=call.block_index,
        owner=call.owner,
        tool_name=call.tool_name,
        tool_version=call.tool_version,
        nonce_digest=None,
        started_at=None,
        deadline_at=None,
        snapshot_id="",
        answer_digest=None,
        source=None,
        projection=None,
        redactor=None,
        has_late_outcome=False,
    )
