"""What a step writes, decided from what was read. Pure: no clock, no database, no keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from services.journal.projection import Projected, is_unshown, may_have_run, not_run
from services.journal.raws import is_large, is_same, lasting
from services.journal.rows import Kept, Outcome, Role, Source, StoredOperation
from services.journal.states import Effect, State, Step, decide

Raws = Mapping[tuple[str, Role], bytes]
"""What is kept of raw outcomes, by operation and role; see `raws`."""


class Shortened(NamedTuple):
    """A stored raw outcome of which only the digest is kept from now on."""

    operation_id: str
    role: Role
    raw: bytes


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
    shortened: list[Shortened] = field(default_factory=list[Shortened])

    @property
    def is_empty(self) -> bool:
        """Nothing to write."""
        return not (self.moves or self.births or self.kept)

    @property
    def one(self) -> tuple[Move, Kept] | None:
        """The move of one operation and the outcome that it keeps, when there is nothing else."""
        if len(self.moves) != 1 or len(self.kept) != 1 or self.births or self.shortened:
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
        """Keep an outcome beside the decided one. What an executor says of an ambiguous call is to
        be told first."""
        id, state = operation.operation_id, operation.state
        is_to_be_told = state is State.AMBIGUOUS and source is Source.EXECUTOR
        self.moves.append(Move(id, state, state))
        kept = raw if is_to_be_told else lasting(raw)
        self.kept.append(Kept(id, Role.LATE, source, kept, None))

    def note(self, operation_id: str, raws: Raws = MappingProxyType({})) -> None:
        """Record that history tells of an ambiguous operation's late outcome."""
        self.shorten(operation_id, Role.LATE, raws.get((operation_id, Role.LATE)))
        self.moves.append(Move(operation_id, State.AMBIGUOUS, State.AMBIGUOUS))
        self.kept.append(Kept(operation_id, Role.NOTED, Source.CLOSURE, None, None))

    def shorten(self, operation_id: str, role: Role, raw: bytes | None) -> None:
        """Keep only the digest of a stored raw outcome, if it is large."""
        if raw is not None and is_large(raw):
            self.shortened.append(Shortened(operation_id, role, lasting(raw)))


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
    if step is Step.RECEIVE:
        kept = Kept(operation_id, Role.RECEIPT, Source.EXECUTOR, *outcome)
    else:
        kept = _decided_kept(operation_id, Source.EXECUTOR, outcome)
    draft.kept.append(kept)
    return draft


def _decided_kept(operation_id: str, source: Source, outcome: Outcome) -> Kept:
    # Nothing else holds an outcome that could not be shown.
    raw = outcome.raw if is_unshown(outcome.projected) else lasting(outcome.raw)
    return Kept(operation_id, Role.DECIDED, source, raw, outcome.projected)


def conclude_received(operation_id: str, outcome: Outcome) -> Draft:
    """An executor's outcome that is the same as its receipt."""
    draft = Draft()
    _, after = decide(Step.COMPLETE, State.RECEIVED)
    draft.move(operation_id, State.RECEIVED, after)
    # The receipt is the raw outcome; it is not stored twice.
    draft.kept.append(Kept(operation_id, Role.DECIDED, Source.EXECUTOR, None, outcome.projected))
    if not is_unshown(outcome.projected):
        draft.shorten(operation_id, Role.RECEIPT, outcome.raw)
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
    if not is_same(_executors(id, raws), outcome.raw):
        raise mismatch(id, "outcome")
    return conclude_received(id, outcome) if effect is Effect.MOVE else draft


def answer(
    draft: Draft, operation_id: str, operation: StoredOperation | None, given: Outcome, raws: Raws
) -> None:
    """Add a client's answer. It decides an open operation, and is kept late beside a closed one."""
    state = State.ABSENT if operation is None else operation.state
    effect, after = decide(Step.ANSWER, state)
    if effect is Effect.MOVE:
        draft.move(operation_id, state, after)
        draft.kept.append(_decided_kept(operation_id, Source.CLIENT, given))
        receipt = raws.get((operation_id, Role.RECEIPT))
        draft.shorten(operation_id, Role.RECEIPT, receipt)
        if receipt is not None and receipt != given.raw:
            late = Kept(operation_id, Role.LATE, Source.EXECUTOR, lasting(receipt), None)
            draft.kept.append(late)
        return
    if operation is None or operation.has_late_outcome or operation.redaction is not None:
        return
    if not is_same(_decided(operation_id, raws), given.raw):
        draft.keep_late(operation, Source.CLIENT, given.raw)


def close(
    draft: Draft,
    operation_id: str,
    operation: StoredOperation | None,
    kind: int,
    receipts: Mapping[str, Projected],
    raws: Raws,
) -> None:
    """Add a closure. `kind` is that of an operation that has no row; `receipts` are the projected
    receipts of operations that have no outcome yet, `raws` has them as they came."""
    state = State.ABSENT if operation is None else operation.state
    effect, after = decide(Step.CLOSE, state)
    if effect is not Effect.MOVE:
        return
    draft.move(operation_id, state, after)
    if (kind if operation is None else operation.kind) != pb.OPERATION_KIND_TOOL_CALL:
        return
    source, projected = _closure(operation_id, after, receipts)
    draft.kept.append(Kept(operation_id, Role.DECIDED, source, None, projected))
    if not is_unshown(projected):
        draft.shorten(operation_id, Role.RECEIPT, raws.get((operation_id, Role.RECEIPT)))


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
    if is_same(_decided(id, raws), raw):
        return
    late = raws.get((id, Role.LATE))
    if late is None:
        draft.keep_late(operation, Source.EXECUTOR, raw)
    elif not is_same(late, raw):
        raise mismatch(id, "late outcome")


def _executors(operation_id: str, raws: Raws) -> bytes | None:
    """What the executor said first: its receipt, or the outcome that it completed with."""
    return raws.get((operation_id, Role.RECEIPT), raws.get((operation_id, Role.DECIDED)))


def _decided(operation_id: str, raws: Raws) -> bytes | None:
    """The raw outcome that was decided; None where nobody gave one."""
    return raws.get((operation_id, Role.DECIDED), raws.get((operation_id, Role.RECEIPT)))
