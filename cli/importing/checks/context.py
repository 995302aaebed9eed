"""What the model saw: every record and every request is made again from the lines before it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from counterfoil.types.v1.reference_pb2 import Attempt, ThreadRef

from cli.importing.checks.journal import Journal
from cli.importing.lines import Lines, Place, refuse
from foundation.exports import TablePart
from foundation.exports.tables import Row
from foundation.storage import SealRing
from services.context import recipe
from services.context.cache import Warm
from services.context.export_parts import CHECKPOINTS, PARTS, REVOCATIONS, SNAPSHOTS, TRANSITIONS
from services.context.history import History
from services.context.losses import NO_LOSSES, Losses
from services.context.recipe import Recipe, ThreadKey
from services.context.records import (
    losses_of,
    open_in_force,
    open_transition,
)
from services.context.snapshots import build
from services.context.verification import Verifier


async def check(
    lines: Lines, ring: SealRing, thread: ThreadRef, outcomes: Journal, history: History
) -> None:
    """Check the context authority's lines. Raises ValueError for the first that does not hold."""
    records = _records(lines, ring, recipe.thread_key(thread))
    _check_requests(records, outcomes)
    found = await Verifier(ring, history, records).verify(thread, requests=True)
    for one in found.findings:
        if not one.informational:
            kind, name = one.message.split(" ", 2)[:2]
            place = records.places.get((kind, name))
            if place is None:
                raise ValueError(f"context: {one.message}")
            raise refuse(place, "", one.message)


@dataclass
class _Records:
    """What is recorded in the lines, as the verifier reads it."""

    ring: SealRing
    places: dict[tuple[str, str], Place] = field(default_factory=dict[tuple[str, str], Place])
    """Lines by what the verifier calls them."""
    parts: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    recipes: dict[str, Recipe] = field(default_factory=dict[str, Recipe])
    moved: list[Row] = field(default_factory=list[Row])
    covered: list[Row] = field(default_factory=list[Row])
    revoked: dict[int, Row] = field(default_factory=dict[int, Row])
    made: list[Row] = field(default_factory=list[Row])

    async def transitions(self, key: ThreadKey) -> Sequence[Row]:
        """See `Recorded`."""
        return self.moved

    async def checkpoints(self, key: ThreadKey) -> Sequence[Row]:
        """See `Recorded`."""
        return [self._covered(row, 2**63 - 1) for row in self.covered]

    async def snapshots(self, key: ThreadKey) -> Sequence[Row]:
        """See `Recorded`."""
        return sorted(self.made, key=lambda row: row["ordinal"])

    async def losses(self, key: ThreadKey, version: int) -> Losses:
        """See `Recorded`."""
        if version == 0:
            return NO_LOSSES
        rows = [self._covered(row, version) for row in self.covered if row["version"] <= version]
        in_force = open_in_force(self.ring, key, rows)
        moved = [row for row in self.moved if row["version"] <= version]
        through = in_force.through_seq if in_force else 0
        anchor = in_force.anchor_seq if in_force else 0
        listed = [
            open_transition(self.ring, key, row)
            for row in moved
            if row["target_seq"] > through or row["target_seq"] == anchor
        ]
        return losses_of(version, listed, moved[-1] if moved else None, rows, in_force)

    async def redacted(self, key: ThreadKey, version: int, seq_max: int) -> bool:
        """See `Recorded`."""
        return any(
            open_transition(self.ring, key, row).reason == "redaction"
            for row in self.moved
            if row["version"] > version and row["target_seq"] <= seq_max
        )

    async def built(self, key: ThreadKey, id: str, stored: Recipe, warm: Warm) -> bytes:
        """See `Recorded`."""
        return build(id, stored, warm, self.parts[stored.request_head], self.parts.get(stored.tail))

    def _covered(self, row: Row, version: int) -> Row:
        by = self.revoked.get(row["ordinal"])
        is_revoked = by is not None and by["version"] <= version
        transition_id = by["transition_id"] if by is not None and is_revoked else None
        return {**row, "is_revoked": is_revoked, "transition_id": transition_id}


def _records(lines: Lines, ring: SealRing, key: ThreadKey) -> _Records:
    found = _Records(ring)
    for place, row in lines.rows(PARTS):
        if hashlib.sha256(row["body_sealed"]).digest() != row["address"]:
            raise refuse(place, "address", "is not the digest of the part")
        found.parts[row["address"]] = row["body_sealed"]

    def kept(part: TablePart, place: Place, row: Row, name: str) -> Row:
        found.places[(place.kind.removeprefix("context."), name)] = place
        return part.at_rest(ring, key, row)

    for place, row in lines.rows(TRANSITIONS):
        found.moved.append(kept(TRANSITIONS, place, row, str(row["hw"])))
        found.places.setdefault(("entry", str(row["target_seq"])), place)
    for place, row in lines.rows(CHECKPOINTS):
        found.covered.append(kept(CHECKPOINTS, place, row, str(row["ordinal"])))
    for _, row in lines.rows(REVOCATIONS):
        found.revoked[row["ordinal"]] = row
    for place, row in lines.rows(SNAPSHOTS):
        found.recipes[row["id"]] = _recipe(found, key, place, row)
        found.made.append(kept(SNAPSHOTS, place, row, row["id"]))
    return found


def _recipe(found: _Records, key: ThreadKey, place: Place, row: Row) -> Recipe:
    try:
        made = recipe.decode(row["recipe_sealed"])
    except msgspec.DecodeError:
        raise refuse(place, "recipe_sealed", "cannot be read") from None
    for name in (made.request_head, made.pins, *([made.tail] if made.tail else [])):
        if name not in found.parts:
            raise refuse(place, "recipe_sealed", "names a part that no line before it holds")
    attempt = Attempt(epoch=row["attempt_epoch"], number=row["attempt_number"])
    id = recipe.snapshot_id(key, row["turn_id"], row["round"], attempt, made.plan_id)
    if id != row["id"]:
        raise refuse(place, "id", "is not the id of the request of this attempt")
    return made


def _check_requests(found: _Records, outcomes: Journal) -> None:
    """What a provider call was sent is what its snapshot says."""
    for id, (digest, place) in outcomes.requests.items():
        made = found.recipes.get(id)
        if made is not None and made.request_digest != digest:
            message = f"is not the digest of the request that snapshot {id} has"
            raise refuse(place, "request_digest", message)
