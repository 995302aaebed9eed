"""SQL of transitions and checkpoints."""

from collections.abc import Sequence
from typing import NamedTuple

from foundation.storage import Connection, Database, Record
from services.context.recipe import ThreadKey

GET_VERSION = """
SELECT losses FROM context.fences
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
"""

# The newest checkpoint through version $4, and the newest of those that were not revoked by then.
LIST_CHECKPOINTS = """
SELECT c.ordinal, c.id, c.through_seq, c.is_copied, c.turn_id, c.sealed,
    r.ordinal IS NOT NULL AS is_revoked
FROM context.checkpoints c
LEFT JOIN context.revocations r
    ON r.workspace_id = $1 AND r.session_id = $2 AND r.thread_id = $3
    AND r.ordinal = c.ordinal AND r.version <= $4
WHERE c.workspace_id = $1 AND c.session_id = $2 AND c.thread_id = $3 AND c.version <= $4
  AND c.ordinal >= coalesce((
    SELECT max(k.ordinal) FROM context.checkpoints k
    WHERE k.workspace_id = $1 AND k.session_id = $2 AND k.thread_id = $3 AND k.version <= $4
      AND NOT EXISTS (
        SELECT FROM context.revocations x
        WHERE x.workspace_id = $1 AND x.session_id = $2 AND x.thread_id = $3
          AND x.ordinal = k.ordinal AND x.version <= $4
      )
  ), 0)
ORDER BY c.ordinal
"""

# $5: the last entry that a checkpoint covers, $6: the input that is shown all the same.
LIST_TRANSITIONS = """
SELECT hw, id, target_seq, part, ordinal, sealed FROM context.transitions
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND version <= $4
  AND (target_seq > $5 OR target_seq = $6)
ORDER BY hw
"""

GET_TRANSITION_HEAD = """
SELECT hw, chain_digest FROM context.transitions
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND version <= $4
ORDER BY hw DESC LIMIT 1
"""

COUNT_CHECKPOINTS_OF_ROUND = """
SELECT count(*) FROM context.checkpoints c
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND turn_id = $4 AND round = $5
  AND NOT EXISTS (
    SELECT FROM context.revocations r
    WHERE r.workspace_id = $1 AND r.session_id = $2 AND r.thread_id = $3 AND r.ordinal = c.ordinal
  )
"""

# $4 epoch, $5 the version that the records were decided on, $6 turn, $7 round; transitions from $8,
# one checkpoint from $15 (ordinal 0: none). No row comes back when the thread has seen a higher
# epoch or has other records by now.
RECORD = """
WITH fence AS (
    INSERT INTO context.fences AS f
        (workspace_id, session_id, thread_id, epoch_max, snapshots, losses)
    SELECT $1, $2, $3, $4::bigint, 0, 1
    WHERE $5::bigint = 0 OR EXISTS (
        SELECT FROM context.fences
        WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
    )
    ON CONFLICT (workspace_id, session_id, thread_id) DO UPDATE
    SET epoch_max = excluded.epoch_max, losses = f.losses + 1
    WHERE f.epoch_max <= excluded.epoch_max AND f.losses = $5
    RETURNING losses
), moved AS (
    INSERT INTO context.transitions (workspace_id, session_id, thread_id, hw, id, target_seq, part,
        ordinal, chain_digest, version, turn_id, round, epoch, sealed)
    SELECT $1, $2, $3, t.hw, t.id, t.target_seq, t.part, t.ordinal, t.chain_digest, fence.losses,
        $6::text, $7::integer, $4, t.sealed
    FROM fence, unnest($8::bigint[], $9::text[], $10::bigint[], $11::integer[], $12::integer[],
        $13::bytea[], $14::bytea[])
        AS t (hw, id, target_seq, part, ordinal, chain_digest, sealed)
), covered AS (
    INSERT INTO context.checkpoints (workspace_id, session_id, thread_id, ordinal, id, through_seq,
        is_copied, version, turn_id, round, epoch, sealed)
    SELECT $1, $2, $3, $15::bigint, $16::text, $17::bigint, FALSE, fence.losses, $6, $7, $4,
        $18::bytea
    FROM fence WHERE $15 > 0
)
SELECT losses FROM fence
"""

# All that concerns entries through $4, whenever it was recorded.
LIST_TRANSITIONS_THROUGH = """
SELECT hw, id, target_seq, part, ordinal, sealed FROM context.transitions
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND target_seq <= $4
ORDER BY hw
"""

LIST_CHECKPOINTS_THROUGH = """
SELECT c.ordinal, c.id, c.sealed FROM context.checkpoints c
WHERE c.workspace_id = $1 AND c.session_id = $2 AND c.thread_id = $3 AND c.through_seq <= $4
  AND NOT EXISTS (
    SELECT FROM context.revocations x
    WHERE x.workspace_id = $1 AND x.session_id = $2 AND x.thread_id = $3 AND x.ordinal = c.ordinal
  )
ORDER BY c.ordinal
"""

# A thread's first records, all of version 1; also of a copy without any, so that nothing is added
# to a copied history afterwards. No row comes back when the thread has records, or the fence
# refuses. Transitions from $5, checkpoints from $12.
COPY = """
WITH fence AS (
    INSERT INTO context.fences AS f
        (workspace_id, session_id, thread_id, epoch_max, snapshots, losses)
    VALUES ($1, $2, $3, $4::bigint, 0, 1)
    ON CONFLICT (workspace_id, session_id, thread_id) DO UPDATE
    SET epoch_max = excluded.epoch_max, losses = 1
    WHERE f.epoch_max <= excluded.epoch_max AND f.losses = 0
    RETURNING losses
), moved AS (
    INSERT INTO context.transitions (workspace_id, session_id, thread_id, hw, id, target_seq, part,
        ordinal, chain_digest, version, turn_id, round, epoch, sealed)
    SELECT $1, $2, $3, t.hw, t.id, t.target_seq, t.part, t.ordinal, t.chain_digest, fence.losses,
        '', 0, $4, t.sealed
    FROM fence, unnest($5::bigint[], $6::text[], $7::bigint[], $8::integer[], $9::integer[],
        $10::bytea[], $11::bytea[])
        AS t (hw, id, target_seq, part, ordinal, chain_digest, sealed)
), covered AS (
    INSERT INTO context.checkpoints (workspace_id, session_id, thread_id, ordinal, id, through_seq,
        is_copied, version, turn_id, round, epoch, sealed)
    SELECT $1, $2, $3, c.ordinal, c.id, c.through_seq, TRUE, fence.losses, '', 0, $4, c.sealed
    FROM fence, unnest($12::bigint[], $13::text[], $14::bigint[], $15::bytea[])
        AS c (ordinal, id, through_seq, sealed)
)
SELECT losses FROM fence
"""

ALL_TRANSITIONS = """
SELECT hw, id, target_seq, part, ordinal, chain_digest, sealed FROM context.transitions
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
ORDER BY hw
"""

ALL_CHECKPOINTS = """
SELECT c.ordinal, c.id, c.through_seq, c.sealed, r.ordinal IS NOT NULL AS is_revoked,
    r.transition_id
FROM context.checkpoints c
LEFT JOIN context.revocations r
    ON r.workspace_id = $1 AND r.session_id = $2 AND r.thread_id = $3 AND r.ordinal = c.ordinal
WHERE c.workspace_id = $1 AND c.session_id = $2 AND c.thread_id = $3
ORDER BY c.ordinal
"""

DELETE_TRANSITIONS = """
DELETE FROM context.transitions
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
"""

DELETE_CHECKPOINTS = """
DELETE FROM context.checkpoints
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
"""

DELETE_REVOCATIONS = """
DELETE FROM context.revocations
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
"""


class NewTransition(NamedTuple):
    """A row of `transitions` to be, in the order of RECORD's parameters."""

    hw: int
    id: str
    target_seq: int
    part: int
    ordinal: int
    chain_digest: bytes
    sealed: bytes | None


class NewCheckpoint(NamedTuple):
    """A row of `checkpoints` to be, in the order of RECORD's parameters."""

    ordinal: int
    id: str
    through_seq: int
    sealed: bytes | None


NO_CHECKPOINT = NewCheckpoint(0, "", 0, None)


async def version(db: Database, key: ThreadKey) -> int:
    """How many records the thread has."""
    return await db.fetchval(GET_VERSION, *key) or 0


async def checkpoints(db: Database, key: ThreadKey, version: int) -> list[Record]:
    """The checkpoint in force at a version, and the revoked ones behind it, oldest first."""
    return await db.fetch(LIST_CHECKPOINTS, *key, version)


async def transitions(
    db: Database, key: ThreadKey, version: int, covered_through: int, anchor_seq: int
) -> list[Record]:
    """Transitions at a version of what is still shown, in their order."""
    return await db.fetch(LIST_TRANSITIONS, *key, version, covered_through, anchor_seq)


async def transition_head(db: Database, key: ThreadKey, version: int) -> Record | None:
    """The last transition at a version."""
    return await db.fetchrow(GET_TRANSITION_HEAD, *key, version)


async def all_transitions(db: Database, key: ThreadKey) -> list[Record]:
    """Every transition of the thread, in order."""
    return await db.fetch(ALL_TRANSITIONS, *key)


async def all_checkpoints(db: Database, key: ThreadKey) -> list[Record]:
    """Every checkpoint of the thread, revoked or not, in order."""
    return await db.fetch(ALL_CHECKPOINTS, *key)


async def checkpoints_of_round(db: Database, key: ThreadKey, turn_id: str, round: int) -> int:
    """How many checkpoints a round of a turn has had; revoked ones do not count."""
    count: int = await db.fetchval(COUNT_CHECKPOINTS_OF_ROUND, *key, turn_id, round)
    return count


async def record(
    db: Database,
    key: ThreadKey,
    epoch: int,
    version: int,
    turn_id: str,
    round: int,
    transitions: Sequence[NewTransition],
    checkpoint: NewCheckpoint,
) -> int | None:
    """Record all of it at once; the new version, None when the thread was not at `version` or has
    seen a higher epoch."""
    columns = [list(column) for column in zip(*transitions, strict=True)] or [[]] * 7
    rows = await db.commit_one(
        "context.record", RECORD, *key, epoch, version, turn_id, round, *columns, *checkpoint
    )
    return rows[0]["losses"] if rows else None


async def through(db: Database, key: ThreadKey, seq: int) -> tuple[list[Record], list[Record]]:
    """Transitions of entries through a sequence, and the checkpoints that go no further and were
    not revoked, in their order."""
    moved = await db.fetch(LIST_TRANSITIONS_THROUGH, *key, seq)
    return moved, await db.fetch(LIST_CHECKPOINTS_THROUGH, *key, seq)


async def copy(
    db: Database,
    key: ThreadKey,
    epoch: int,
    transitions: Sequence[NewTransition],
    checkpoints: Sequence[NewCheckpoint],
) -> bool:
    """Record a thread's first losses; False when it has some, or has seen a higher epoch."""
    moved = [list(column) for column in zip(*transitions, strict=True)] or [[]] * 7
    covered = [list(column) for column in zip(*checkpoints, strict=True)] or [[]] * 4
    return bool(await db.commit_one("context.copy", COPY, *key, epoch, *moved, *covered))


async def erase(c: Connection, key: ThreadKey) -> None:
    """Remove the records of a thread that is a tombstone."""
    for statement in (DELETE_TRANSITIONS, DELETE_CHECKPOINTS, DELETE_REVOCATIONS):
        await c.execute(statement, *key)
