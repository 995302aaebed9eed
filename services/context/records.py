"""Reads and writes a thread's losses: sealed on the way in, opened and checked on the way out."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from foundation.storage import Database, SealBroken, SealRing
from services.context import loss_store
from services.context.checkpoints import Checkpoint
from services.context.loss_store import NO_CHECKPOINT, NewCheckpoint, NewTransition
from services.context.losses import NO_LOSSES, Losses
from services.context.recipe import Row, ThreadKey
from services.context.transitions import UNREADABLE, Transition, unreadable

_TRANSITION = msgspec.msgpack.Decoder(Transition)
_CHECKPOINT = msgspec.msgpack.Decoder(Checkpoint)


class Records:
    """The recorded losses of all threads."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring

    async def newest(self, key: ThreadKey) -> Losses:
        """What the thread has lost until now."""
        return await self.at(key, await loss_store.version(self._db, key))

    async def at(self, key: ThreadKey, version: int) -> Losses:
        """What the thread had lost at a version. Raises CORRUPT for a checkpoint that cannot be
        read: raw history in its place would be another history."""
        if version == 0:
            return NO_LOSSES
        rows = await loss_store.checkpoints(self._db, key, version)
        in_force = open_in_force(self._ring, key, rows)
        covered = in_force.through_seq if in_force else 0
        anchor = in_force.anchor_seq if in_force else 0
        listed = await loss_store.transitions(self._db, key, version, covered, anchor)
        head = await loss_store.transition_head(self._db, key, version)
        moved = [open_transition(self._ring, key, row) for row in listed]
        return losses_of(version, moved, head, rows, in_force)

    async def record_transitions(
        self,
        key: ThreadKey,
        epoch: int,
        turn: tuple[str, int],
        before: Losses,
        batch: Sequence[Transition],
    ) -> Losses | None:
        """Record a batch that was checked against `before`; None when that is not the newest any
        more, or the fence refuses."""
        rows, losses = list[NewTransition](), before
        for one in batch:
            losses = losses.with_transitions([one], before.version + 1)
            rows.append(new_transition(self._ring, key, losses, one))
        found = await loss_store.record(
            self._db, key, epoch, before.version, *turn, rows, NO_CHECKPOINT
        )
        return None if found is None else losses

    async def record_checkpoint(
        self, key: ThreadKey, epoch: int, turn: tuple[str, int], before: Losses, made: Checkpoint
    ) -> Losses | None:
        """Record a checkpoint that was checked against `before`; None as for transitions."""
        losses = before.with_checkpoint(made, before.version + 1)
        sealed = self._sealed_checkpoint(key, losses.ordinal, made)
        row = NewCheckpoint(losses.ordinal, made.id, made.through_seq, sealed)
        found = await loss_store.record(self._db, key, epoch, before.version, *turn, (), row)
        return None if found is None else losses

    async def through(self, key: ThreadKey, seq: int) -> tuple[list[Transition], list[Checkpoint]]:
        """Transitions of entries through a sequence, and the checkpoints that go no further and
        were not revoked, in their order. Raises CORRUPT for a checkpoint that cannot be read."""
        moved, covered = await loss_store.through(self._db, key, seq)
        return (
            [open_transition(self._ring, key, row) for row in moved],
            [open_checkpoint(self._ring, key, row) for row in covered],
        )

    async def copy(
        self,
        key: ThreadKey,
        epoch: int,
        transitions: Sequence[Transition],
        checkpoints: Sequence[Checkpoint],
    ) -> bool:
        """Record a thread's first losses; False when it has some, or the fence refuses."""
        rows, losses = list[NewTransition](), NO_LOSSES
        for one in transitions:
            losses = losses.with_transitions([one], 1)
            rows.append(new_transition(self._ring, key, losses, one))
        covered = [
            NewCheckpoint(
                ordinal, one.id, one.through_seq, self._sealed_checkpoint(key, ordinal, one)
            )
            for ordinal, one in enumerate(checkpoints, start=1)
        ]
        return await loss_store.copy(self._db, key, epoch, rows, covered)

    async def checkpoints_of_round(self, key: ThreadKey, turn: tuple[str, int]) -> int:
        """How many checkpoints a round of a turn has had."""
        return await loss_store.checkpoints_of_round(self._db, key, *turn)

    def _sealed_checkpoint(self, key: ThreadKey, ordinal: int, made: Checkpoint) -> bytes:
        bound = checkpoint_identity(key, ordinal, made.id)
        return self._ring.seal(msgspec.msgpack.encode(made), *bound)


def open_in_force(ring: SealRing, key: ThreadKey, rows: Sequence[Row]) -> Checkpoint | None:
    """The newest of these checkpoints that is not revoked. Raises CORRUPT where it cannot be
    read."""
    valid = [row for row in rows if not row["is_revoked"]]
    return open_checkpoint(ring, key, valid[-1]) if valid else None


def losses_of(
    version: int,
    moved: Sequence[Transition],
    head: Row | None,
    rows: Sequence[Row],
    in_force: Checkpoint | None,
) -> Losses:
    """Losses at a version: the transitions of what is shown, the last of all of them, the
    checkpoints' rows, and the one of them that is in force."""
    valid = [row for row in rows if not row["is_revoked"]]
    return Losses(
        version,
        0 if head is None else head["hw"],
        b"" if head is None else head["chain_digest"],
        NO_LOSSES.with_transitions(moved, version).transitions,
        in_force,
        rows[-1]["id"] if rows else "",
        rows[-1]["ordinal"] if rows else 0,
        rows[-1]["through_seq"] if rows and rows[-1]["is_revoked"] else 0,
        bool(valid and valid[-1]["is_copied"]),
    )


def open_checkpoint(ring: SealRing, key: ThreadKey, row: Row) -> Checkpoint:
    """A stored checkpoint. Raises CORRUPT for one that cannot be read."""
    try:
        bound = checkpoint_identity(key, row["ordinal"], row["id"])
        return _CHECKPOINT.decode(ring.open(row["sealed"] or b"", *bound))
    except (SealBroken, msgspec.DecodeError):
        message = f"checkpoint {row['id']} cannot be read"
        raise Failure(reasons.ERROR_REASON_CORRUPT, message) from None


def new_transition(
    ring: SealRing, key: ThreadKey, losses: Losses, one: Transition
) -> NewTransition:
    """The row of a transition, the last one of `losses`; what could not be read has no body
    here either."""
    sealed = None
    if one.reason != UNREADABLE:
        bound = transition_identity(key, losses.count, one.id)
        sealed = ring.seal(msgspec.msgpack.encode(one), *bound)
    return NewTransition(
        losses.count, one.id, one.seq, one.part, one.ordinal, losses.digest, sealed
    )


def open_transition(ring: SealRing, key: ThreadKey, row: Row) -> Transition:
    """The transition in a row; one that withholds its target where it cannot be read."""
    try:
        bound = transition_identity(key, row["hw"], row["id"])
        return _TRANSITION.decode(ring.open(row["sealed"] or b"", *bound))
    except (SealBroken, msgspec.DecodeError):
        return unreadable(row["id"], row["target_seq"], row["part"], row["ordinal"])


def decode_transition(row: Mapping[str, Any]) -> Transition:
    """The transition in an opened row. Raises DecodeError."""
    if row["sealed"] is None:
        return unreadable(row["id"], row["target_seq"], row["part"], row["ordinal"])
    return _TRANSITION.decode(row["sealed"])


def decode_checkpoint(body: bytes) -> Checkpoint:
    """An opened checkpoint. Raises DecodeError."""
    return _CHECKPOINT.decode(body)


def transition_identity(key: ThreadKey, hw: int, id: str) -> tuple[str | int, ...]:
    """What a sealed transition is bound to."""
    return ("context.transitions", "sealed", *key, hw, id)


def checkpoint_identity(key: ThreadKey, ordinal: int, id: str) -> tuple[str | int, ...]:
    """What a sealed checkpoint is bound to."""
    return ("context.checkpoints", "sealed", *key, ordinal, id)
