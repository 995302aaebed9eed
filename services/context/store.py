"""SQL of the context authority."""

from collections.abc import Sequence
from typing import NamedTuple

from foundation.storage import Connection, Database, Record
from services.context.recipe import ThreadKey

EPOCH_INFINITE = 2**63 - 1
"""`epoch_max` of a deleted thread."""

# No row comes back when the thread has seen a higher epoch. The lock that this takes on the row
# orders the thread's writers.
RAISE_FENCE = """
INSERT INTO context.fences AS f (workspace_id, session_id, thread_id, epoch_max, snapshots)
VALUES ($1, $2, $3, $4, 0)
ON CONFLICT (workspace_id, session_id, thread_id) DO UPDATE SET epoch_max = excluded.epoch_max
WHERE f.epoch_max <= excluded.epoch_max
RETURNING epoch_max
"""

GET_EPOCH_MAX = """
SELECT epoch_max FROM context.fences
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
"""

# $4 epoch, $5 id, $6 turn, $7 round, $8 and $9 attempt, $10 recipe, $11 its parts' addresses, $12
# the count of records that it was made with. Nothing is stored while one of the parts is not there
# for this thread, or the thread has other records by now.
PUT_SNAPSHOT = """
WITH known AS (
    SELECT count(*) = cardinality($11::bytea[]) AS complete FROM context.part_uses
    WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND address = ANY($11)
), fence AS (
    INSERT INTO context.fences AS f (workspace_id, session_id, thread_id, epoch_max, snapshots)
    VALUES ($1, $2, $3, $4, 1)
    ON CONFLICT (workspace_id, session_id, thread_id) DO UPDATE
    SET epoch_max = excluded.epoch_max, snapshots = f.snapshots + 1
    WHERE f.epoch_max <= excluded.epoch_max AND f.losses = $12::bigint
    RETURNING snapshots
), stored AS (
    INSERT INTO context.snapshots (workspace_id, session_id, thread_id, id, turn_id, round,
        attempt_epoch, attempt_number, ordinal, recipe_sealed)
    SELECT $1, $2, $3, $5, $6, $7, $8, $9, fence.snapshots, $10
    FROM fence, known WHERE known.complete
    ON CONFLICT (workspace_id, session_id, thread_id, id) DO NOTHING
    RETURNING id
)
SELECT EXISTS (SELECT FROM fence) AS admitted, (SELECT complete FROM known) AS complete,
       EXISTS (SELECT FROM stored) AS stored, $13::integer AS call
"""

# The same with the parts, for a thread that may not have used them: $13 are their sealed bodies. An
# update of a part changes nothing, but locks the row against a tombstone that would take it along.
PUT_SNAPSHOT_WITH_PARTS = """
WITH fence AS (
    INSERT INTO context.fences AS f (workspace_id, session_id, thread_id, epoch_max, snapshots)
    VALUES ($1, $2, $3, $4, 1)
    ON CONFLICT (workspace_id, session_id, thread_id) DO UPDATE
    SET epoch_max = excluded.epoch_max, snapshots = f.snapshots + 1
    WHERE f.epoch_max <= excluded.epoch_max AND f.losses = $12::bigint
    RETURNING snapshots
), part AS (
    INSERT INTO context.parts AS p (workspace_id, address, body_sealed)
    SELECT $1, given.address, given.body
    FROM fence, unnest($11::bytea[], $13::bytea[]) AS given (address, body)
    ORDER BY given.address
    ON CONFLICT (workspace_id, address) DO UPDATE SET body_sealed = p.body_sealed
    RETURNING address
), use AS (
    INSERT INTO context.part_uses (workspace_id, session_id, thread_id, address)
    SELECT $1, $2, $3, part.address FROM part
    ON CONFLICT DO NOTHING
), stored AS (
    INSERT INTO context.snapshots (workspace_id, session_id, thread_id, id, turn_id, round,
        attempt_epoch, attempt_number, ordinal, recipe_sealed)
    SELECT $1, $2, $3, $5, $6, $7, $8, $9, fence.snapshots, $10 FROM fence
    ON CONFLICT (workspace_id, session_id, thread_id, id) DO NOTHING
    RETURNING id
)
SELECT EXISTS (SELECT FROM fence) AS admitted, EXISTS (SELECT FROM stored) AS stored
"""

GET_PARTS = """
SELECT address, body_sealed FROM context.parts WHERE workspace_id = $1 AND address = ANY($2)
"""

GET_PART_KEY = """
SELECT key_sealed FROM context.part_keys WHERE workspace_id = $1
"""

OFFER_PART_KEY = """
INSERT INTO context.part_keys (workspace_id, key_sealed) VALUES ($1, $2)
ON CONFLICT (workspace_id) DO NOTHING
"""

GET_SNAPSHOT = """
SELECT id, turn_id, round, attempt_epoch, attempt_number, recipe_sealed FROM context.snapshots
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND id = $4
"""

# No index starts with the id: writers do not pay for what an operator asks now and then.
LOCATE_SNAPSHOT = """
SELECT workspace_id, session_id, thread_id FROM context.snapshots WHERE id = $1 LIMIT 1
"""

LIST_SNAPSHOTS = """
SELECT id, turn_id, round, attempt_epoch, attempt_number, recipe_sealed FROM context.snapshots
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
ORDER BY ordinal
"""

LIST_SNAPSHOTS_OF_TURN = """
SELECT id, turn_id, round, attempt_epoch, attempt_number, recipe_sealed FROM context.snapshots
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND turn_id = $4
ORDER BY ordinal
"""

GET_PREFIX = """
SELECT seq, digest, messages_sealed FROM context.prefixes
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND version = $4 AND losses = $5
  AND seq <= $6
"""

# The lock lets snapshots of the thread pass, but no deletion and no redaction (LOCK_FENCE): those
# wait, and then find the row; or they were first, and nothing is stored.
KEEP_PREFIX = """
WITH claim AS (
    SELECT FROM context.fences
    WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND epoch_max = $4
      AND losses = $8
    FOR KEY SHARE
)
INSERT INTO context.prefixes
    (workspace_id, session_id, thread_id, seq, digest, version, losses, messages_sealed)
SELECT $1, $2, $3, $5::bigint, $6::bytea, $7::integer, $8::bigint, $9::bytea FROM claim
ON CONFLICT (workspace_id, session_id, thread_id) DO UPDATE
SET seq = excluded.seq, digest = excluded.digest, version = excluded.version,
    losses = excluded.losses, messages_sealed = excluded.messages_sealed
"""

LOCK_FENCE = """
SELECT FROM context.fences
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
FOR UPDATE
"""

DELETE_PREFIX = """
DELETE FROM context.prefixes WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
"""

DELETE_SNAPSHOTS = """
DELETE FROM context.snapshots WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
"""

DELETE_PART_USES = """
DELETE FROM context.part_uses WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
RETURNING address
"""

# A statement of its own: the next one must see the uses of whoever held these locks before.
LOCK_PARTS = """
SELECT address FROM context.parts WHERE workspace_id = $1 AND address = ANY($2)
ORDER BY address FOR UPDATE
"""

DELETE_UNUSED_PARTS = """
DELETE FROM context.parts p WHERE p.workspace_id = $1 AND p.address = ANY($2) AND NOT EXISTS (
    SELECT FROM context.part_uses u WHERE u.workspace_id = $1 AND u.address = p.address
)
"""

NOTE_ACCESS = """
INSERT INTO context.access
    (id, workspace_id, session_id, thread_id, action, request_id, snapshot_id)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""


class NewSnapshot(NamedTuple):
    """A row of `snapshots` to be, in the order of PUT_SNAPSHOT's parameters."""

    workspace_id: str
    session_id: str
    thread_id: str
    epoch: int
    id: str
    turn_id: str
    round: int
    attempt_epoch: int
    attempt_number: int
    recipe_sealed: bytes
    addresses: list[bytes]
    losses_version: int


async def raise_fence(c: Connection, key: ThreadKey, epoch: int) -> bool:
    """Raise the thread's epoch and lock it; False when it has seen a higher one."""
    return await c.fetchval(RAISE_FENCE, *key, epoch) is not None


async def epoch_max(db: Database, key: ThreadKey) -> int:
    """The highest epoch that the thread has seen; 0 for an unknown thread."""
    return await db.fetchval(GET_EPOCH_MAX, *key) or 0


async def put_snapshot(db: Database, row: NewSnapshot) -> Record:
    """Store a snapshot whose parts are there: admitted, complete, stored."""
    found = await db.commit_grouped(
        "context.prepare", PUT_SNAPSHOT, *row, weight=len(row.recipe_sealed)
    )
    return found[0]


async def put_snapshot_with_parts(
    db: Database, row: NewSnapshot, bodies_sealed: Sequence[bytes]
) -> Record:
    """Store a snapshot and its parts: admitted, stored."""
    found = await db.commit_one("context.prepare", PUT_SNAPSHOT_WITH_PARTS, *row, bodies_sealed)
    return found[0]


async def parts(db: Database, workspace_id: str, addresses: Sequence[bytes]) -> dict[bytes, bytes]:
    """Sealed parts by address."""
    rows = await db.fetch(GET_PARTS, workspace_id, list(addresses))
    return {row["address"]: row["body_sealed"] for row in rows}


async def part_key(db: Database, workspace_id: str) -> bytes | None:
    """The sealed key of a workspace's addresses."""
    found: bytes | None = await db.fetchval(GET_PART_KEY, workspace_id)
    return found


async def offer_part_key(db: Database, workspace_id: str, sealed: bytes) -> None:
    """Store a workspace's key unless it has one."""
    await db.commit_one("context.create_part_key", OFFER_PART_KEY, workspace_id, sealed)


async def snapshot(db: Database, key: ThreadKey, id: str) -> Record | None:
    """One snapshot."""
    return await db.fetchrow(GET_SNAPSHOT, *key, id)


async def home_of_snapshot(db: Database, id: str) -> ThreadKey | None:
    """The thread of a snapshot, in any workspace: for operators."""
    row = await db.fetchrow(LOCATE_SNAPSHOT, id)
    return None if row is None else (row["workspace_id"], row["session_id"], row["thread_id"])


async def snapshots(db: Database, key: ThreadKey) -> list[Record]:
    """The thread's snapshots, oldest first."""
    return await db.fetch(LIST_SNAPSHOTS, *key)


async def snapshots_of_turn(c: Connection, key: ThreadKey, turn_id: str) -> list[Record]:
    """A turn's snapshots, oldest first."""
    return await c.fetch(LIST_SNAPSHOTS_OF_TURN, *key, turn_id)


async def prefix(
    db: Database, key: ThreadKey, version: int, losses: int, seq_max: int
) -> Record | None:
    """The thread's kept prefix, if it is of this version and these losses and ends at `seq_max` or
    before."""
    return await db.fetchrow(GET_PREFIX, *key, version, losses, seq_max)


async def keep_prefix(
    db: Database,
    key: ThreadKey,
    epoch: int,
    seq: int,
    digest: bytes,
    version: int,
    losses: int,
    sealed: bytes,
) -> None:
    """Keep a prefix in place of the one before, unless the thread has seen a higher epoch or has
    other losses by now."""
    row = (seq, digest, version, losses, sealed)
    await db.commit_one("context.keep_prefix", KEEP_PREFIX, *key, epoch, *row)


async def erase(c: Connection, key: ThreadKey) -> None:
    """Remove the thread's snapshots and kept messages, and the parts that no other thread uses."""
    await c.execute(LOCK_FENCE, *key)
    await c.execute(DELETE_PREFIX, *key)
    await c.execute(DELETE_SNAPSHOTS, *key)
    addresses = [row["address"] for row in await c.fetch(DELETE_PART_USES, *key)]
    await c.fetch(LOCK_PARTS, key[0], addresses)
    await c.execute(DELETE_UNUSED_PARTS, key[0], addresses)


async def note_access(
    db: Database, id: str, key: ThreadKey, action: str, request_id: str, snapshot_id: str
) -> None:
    """Add to the access record."""
    await db.commit_one(
        "context.note_access", NOTE_ACCESS, id, *key, action, request_id, snapshot_id
    )
