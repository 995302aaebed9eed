"""What a step writes, decided from what was read. Pure: no clock, no database, no keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from services.journal.projection import Projected, may_have_run, not_run
from services.journal.rows import Kept, Outcome, Role, Source, StoredOperation
from services.journal.states import Effect, State, Step, decide

Raws = Mapping[tuple[str, Role], bytes]
"""Serialized outcomes by operation and role, as far as they are stored."""


class Move(NamedTuple):
    """An existing operation goes from one state to another, or is held where it is."""

    operation_id: str
    before: State
    after: State


@dataclass
class Draft:
    """All that one statement writes."""

    moves: list[Move] = field(default_factory=list[Move])
    births: list[tuple[str, State]] = field(default_factory=list[tuple[str, State]])
    kept: list[Kept] = field(default_factory=list[Kept])

    @property
    def is_empty(self) -> bool:
        """Nothing to write."""
        return not (self.moves or self.births or self.kept)

    @property
    def one(self) -> tuple[Move, Kept] | None:
        """The move of one operation and the outcome that it keeps, when there is nothing else."""
        if len(self.moves) != 1 or len(self.kept) != 1 or self.births:
            return None
        move, kept = self.moves[0], self.kept[0]
        is_one = move.before is not move.after and move.operation_id == kept.operation_id
        return (move, kept) if is_one else None

    def move(self, operation_id: str, before: State, after: State) -> None:
        """Let the operation change its state, or come into being in one."""
        if before is State.ABSENT:
            self.births.append((operation_id, after))
        else:
            self.moves.append(Move(operation_id, before, after))

    def keep_late(self, operation: StoredOperation, source: Source, raw: bytes) -> None:
        """Keep an outcome beside the decided one."""
        self.moves.append(Move(operation.operation_id, operation.state, operation.state))
        self.kept.append(Kept(operation.operation_id, Role.LATE, source, raw, None))

    def note(self, operation_id: str) -> None:
        """Record that history tells of an ambiguous operation's late outcome."""
        self.moves.append(Move(operation_id, State.AMBIGUOUS, State.AMBIGUOUS))
        self.kept.append(Kept(operation_id, Role.NOTED, Source.CLOSURE, None, None))


def refused(operation_id: str, why: str) -> Failure:
    """The step cannot be taken."""
    return Failure(reasons.ERROR_REASON_OPERATION_REFUSED, f"{operation_id} {why}")


def mismatch(operation_id: str, what: str) -> Failure:
    """The same step was taken before, with something else."""
    return Failure(
        reasons.ERROR_REASON_DIGEST_MISMATCH, f"{operation_id} was recorded with another {what}"
    )


def check_kind(operation: StoredOperation, kind: int) -> None:
    """Refuse a tool call where a provider call is meant, and the other way round."""
    if operation.kind != kind:
        raise refused(operation.operation_id, "is of another kind")


def check_late(operation_id: str, operation: StoredOperation | None) -> None:
    """Refuse to note a late outcome that there is not."""
    is_late = operation is not None and operation.has_late_outcome
    if operation is None or not is_late or operation.state is not State.AMBIGUOUS:
        raise refused(operation_id, "has no late outcome of an ambiguous call")


def conclude_started(step: Step, operation_id: str, outcome: Outcome) -> Draft:
    """An executor's outcome or receipt for a started operation."""
    draft = Draft()
    _, after = decide(step, State.STARTED)
    draft.move(operation_id, State.STARTED, after)
    role = Role.RECEIPT if step is Step.RECEIVE else Role.DECIDED
    draft.kept.append(Kept(operation_id, role, Source.EXECUTOR, *outcome))
    return draft


def conclude_received(operation_id: str, projected: Projected | None) -> Draft:
    """An executor's outcome that is the same as its receipt."""
    draft = Draft()
    _, after = decide(Step.COMPLETE, State.RECEIVED)
    draft.move(operation_id, State.RECEIVED, after)
    # The receipt is the raw outcome; it is not stored twice.
    draft.kept.append(Kept(operation_id, Role.DECIDED, Source.EXECUTOR, None, projected))
    return draft


def conclude(step: Step, operation: StoredOperation, outcome: Outcome, raws: Raws) -> Draft:
    """An executor's outcome or receipt, whose nonce was checked.

    Raises OPERATION_REFUSED when the state forbids it, DIGEST_MISMATCH when the executor said
    something else before.
    """
    id, state = operation.operation_id, operation.state
    effect, _ = decide(step, state)
    if effect is Effect.REFUSE:
        raise refused(id, f"is {state.name.lower()}")
    if state is State.STARTED:
        return conclude_started(step, id, outcome)
    draft = Draft()
    if operation.redaction is not None:
        return draft  # nothing is kept of it any more, whatever is said
    if effect is Effect.LATE or operation.source == Source.CLIENT:
        _keep_executors_late(draft, operation, outcome.raw, raws)
        return draft
    if _executors(id, raws) != outcome.raw:
        raise mismatch(id, "outcome")
    return conclude_received(id, outcome.projected) if effect is Effect.MOVE else draft


def answer(
    draft: Draft, operation_id: str, operation: StoredOperation | None, given: Outcome, raws: Raws
) -> None:
    """Add a client's answer. It decides an open operation, and is kept late beside a closed one."""
    state = State.ABSENT if operation is None else operation.state
    effect, after = decide(Step.ANSWER, state)
    if effect is Effect.MOVE:
        draft.move(operation_id, state, after)
        draft.kept.append(Kept(operation_id, Role.DECIDED, Source.CLIENT, *given))
        receipt = raws.get((operation_id, Role.RECEIPT))
        if receipt is not None and receipt != given.raw:
            draft.kept.append(Kept(operation_id, Role.LATE, Source.EXECUTOR, receipt, None))
        return
    if operation is None or operation.has_late_outcome or operation.redaction is not None:
        return
    if _decided(operation_id, raws) != given.raw:
        draft.keep_late(operation, Source.CLIENT, given.raw)


def close(
    draft: Draft,
    operation_id: str,
    operation: StoredOperation | None,
    kind: int,
    receipts: Mapping[str, Projected],
) -> None:
    """Add a closure. `kind` is that of an operation that has no row; `receipts` are the projected
    receipts of operations that have no outcome yet."""
    state = State.ABSENT if operation is None else operation.state
    effect, after = decide(Step.CLOSE, state)
    if effect is not Effect.MOVE:
        return
    draft.move(operation_id, state, after)
    if (kind if operation is None else operation.kind) != pb.OPERATION_KIND_TOOL_CALL:
        return
    source, projected = _closure(operation_id, after, receipts)
    draft.kept.append(Kept(operation_id, Role.DECIDED, source, None, projected))


def _closure(
    operation_id: str, after: State, receipts: Mapping[str, Projected]
) -> tuple[Source, Projected]:
    if after is State.ABANDONED:
        return Source.CLOSURE, not_run()
    if after is State.AMBIGUOUS:
        return Source.CLOSURE, may_have_run()
    return Source.EXECUTOR, receipts[operation_id]


def _keep_executors_late(draft: Draft, operation: StoredOperation, raw: bytes, raws: Raws) -> None:
    id = operation.operation_id
    if raw == _decided(id, raws):
        return
    late = raws.get((id, Role.LATE))
    if late is None:
        draft.keep_late(operation, Source.EXECUTOR, raw)
    elif late != raw:
        raise mismatch(id, "late outcome")


def _executors(operation_id: str, raws: Raws) -> bytes | None:
    """What the executor said first: its receipt, or the outcome that it completed with."""
    return raws.get((operation_id, Role.RECEIPT), raws.get((operation_id, Role.DECIDED)))


def _decided(operation_id: str, raws: Raws) -> bytes | None:
    """The raw outcome that was decided; None where nobody gave one."""
    return raws.get((operation_id, Role.DECIDED), raws.get((operation_id, Role.RECEIPT)))
