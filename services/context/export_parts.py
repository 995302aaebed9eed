"""The context authority's tables as lines. A part is named by its digest: its address is keyed, so
that it means nothing elsewhere."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec
from counterfoil.types.v1.reference_pb2 import Attempt

from foundation.exports import BASE64, HEX, Sealed, TablePart, declared
from foundation.exports.cuts import LATER
from foundation.exports.tables import Key
from services.context import recipe
from services.context.records import checkpoint_identity, transition_identity


class _Parts(TablePart):
    """Parts are shared by the threads of a workspace."""

    @cached_property
    def insert(self) -> str:
        """The statement that inserts a part unless it is there."""
        return f"{super().insert} ON CONFLICT DO NOTHING"


PARTS = _Parts(
    "context.part",
    declared("services.context.schema", "context.parts"),
    key_columns=1,
    forms={
        "address": HEX,
        "body_sealed": Sealed(
            lambda key, row: recipe.part_identity(key[0], row["address"]), BASE64
        ),
    },
    condition="""address IN (
        SELECT address FROM context.part_uses
        WHERE workspace_id = $1 AND session_id = {0} AND thread_id = {1}
    )""",
    page_rows=8,
)

# {3}: how many records were known.
TRANSITIONS = TablePart(
    "context.transition",
    declared("services.context.schema", "context.transitions"),
    forms={
        "chain_digest": HEX,
        "sealed": Sealed(
            lambda key, row: transition_identity(_three(key), row["hw"], row["id"]), BASE64
        ),
    },
    condition="version <= {0}",
)
CHECKPOINTS = TablePart(
    "context.checkpoint",
    declared("services.context.schema", "context.checkpoints"),
    forms={
        "sealed": Sealed(
            lambda key, row: checkpoint_identity(_three(key), row["ordinal"], row["id"]), BASE64
        ),
    },
    condition="version <= {0}",
)
REVOCATIONS = TablePart(
    "context.revocation",
    declared("services.context.schema", "context.revocations"),
    condition="version <= {0}",
)


def _recipe_identity(key: Key, row: Mapping[str, Any]) -> tuple[str | int, ...]:
    attempt = Attempt(epoch=row["attempt_epoch"], number=row["attempt_number"])
    return recipe.identity(_three(key), row["id"], row["turn_id"], row["round"], attempt)


def _three(key: Key) -> recipe.ThreadKey:
    return key[0], key[1], key[2]


SNAPSHOTS = TablePart(
    "context.snapshot",
    declared("services.context.schema", "context.snapshots"),
    forms={"recipe_sealed": Sealed(_recipe_identity, BASE64)},
    condition="NOT " + LATER % {"table": "snapshots"} + " AND attempt_epoch <= {2}",
)

RECORDS = (TRANSITIONS, CHECKPOINTS, REVOCATIONS)
OWN = {part.kind: part for part in (*RECORDS, SNAPSHOTS)}
"""What belongs to one thread alone."""

ALL = {PARTS.kind: PARTS, **OWN}


def with_names(sealed_recipe: bytes, names: Mapping[bytes, bytes]) -> bytes:
    """A serialized recipe whose parts are called otherwise. Raises KeyError for one without a name,
    and msgspec.DecodeError."""
    made = recipe.decode(sealed_recipe)
    return recipe.encode(
        msgspec.structs.replace(
            made,
            request_head=names[made.request_head],
            pins=names[made.pins],
            tail=names[made.tail] if made.tail else b"",
        )
    )
