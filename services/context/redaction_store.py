"""SQL of redactions: statements of one transaction, under the lock of the thread's fence."""

from collections.abc import Sequence

from foundation.storage import Connection, Database, Record
from services.context import store
from services.context.loss_store import NewTransition
from services.context.recipe import ThreadKey

CREATE_FENCE = """
INSERT INTO context.fences (workspace_id, session_id, thread_id, epoch_max, snapshots)
VALUES ($1, $2, $3, 0, 0)
ON CONFLICT DO NOTHING
"""

LOCK_FENCE = """
SELECT epoch_max, losses FROM context.fences
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
FOR UPDATE
"""

# All transitions of the given entries.
LIST_CHAINS = """
SELECT hw, id, target_seq, part, ordinal, sealed FROM context.transitions
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND target_seq = ANY($4::bigint[])
ORDER BY hw
"""

GET_HEAD = """
SELECT hw, chain_digest FROM context.transitions
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
ORDER BY hw DESC LIMIT 1
"""

COUNT = """
UPDATE context.fences SET losses = losses + 1
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
RETURNING losses
"""

INSERT_TRANSITIONS = """
INSERT INTO context.transitions (workspace_id, session_id, thread_id, version, epoch, turn_id,
    round, hw, id, target_seq, part, ordinal, chain_digest, sealed)
SELECT $1, $2, $3, $4::bigint, $5::bigint, '', 0, given.*
FROM unnest($6::bigint[], $7::text[], $8::bigint[], $9::integer[], $10::integer[], $11::bytea[],
    $12::bytea[]) AS given
"""

# $4 version, $5 transition, $6 its entry.
REVOKE = """
INSERT INTO context.revocations (workspace_id, session_id, thread_id, ordinal, version,
    transition_id)
SELECT $1, $2, $3, c.ordinal, $4::bigint, $5::text FROM context.checkpoints c
WHERE c.workspace_id = $1 AND c.session_id = $2 AND c.thread_id = $3 AND c.through_seq >= $6
ON CONFLICT DO NOTHING
RETURNING ordinal
"""

ERASE_CHECKPOINTS = """
UPDATE context.checkpoints SET sealed = NULL
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND through_seq >= $4
  AND sealed IS NOT NULL
"""

# What had replaced the target before $6.
ERASE_TRANSITIONS = """
UPDATE context.transitions SET sealed = NULL
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND target_seq = $4 AND part = $5
  AND ordinal < $6 AND sealed IS NOT NULL
"""

LIST_LATER = """
SELECT hw, id, target_seq, part, ordinal, sealed FROM context.transitions
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND version > $4
  AND target_seq <= $5 AND sealed IS NOT NULL
ORDER BY hw
"""

NOTE_REDACTION = """
INSERT INTO context.access
    (id, workspace_id, session_id, thread_id, action, request_id, snapshot_id, reader, purpose)
VALUES ($1, $2, $3, $4, 'redact', $5, $6, $7, $8)
"""


async def lock(c: Connection, key: ThreadKey) -> Record:
    """The thread's fence, locked so that nobody records, stores or keeps anything meanwhile."""
    await c.execute(CREATE_FENCE, *key)
    found = await c.fetchrow(LOCK_FENCE, *key)
    assert found is not None
    return found


async def chains(c: Connection, key: ThreadKey, seqs: Sequence[int]) -> list[Record]:
    """All transitions of some entries, in their order."""
    return await c.fetch(LIST_CHAINS, *key, list(seqs))


async def head(c: Connection, key: ThreadKey) -> Record | None:
    """The thread's last transition."""
    return await c.fetchrow(GET_HEAD, *key)


async def record(c: Connection, key: ThreadKey, epoch: int, rows: Sequence[NewTransition]) -> int:
    """Record redactions, erase what they replace, and revoke and erase every summary that covers
    one; returns how many were revoked."""
    version: int = await c.fetchval(COUNT, *key)
    columns = [list(column) for column in zip(*rows, strict=True)]
    await c.execute(INSERT_TRANSITIONS, *key, version, epoch, *columns)
    first = min(rows, key=lambda row: row.target_seq)
    revoked = await c.fetch(REVOKE, *key, version, first.id, first.target_seq)
    await c.execute(ERASE_CHECKPOINTS, *key, first.target_seq)
    for row in rows:
        await c.execute(ERASE_TRANSITIONS, *key, row.target_seq, row.part, row.ordinal)
    await c.execute(store.DELETE_PREFIX, *key)
    return len(revoked)


async def note(
    c: Connection, id: str, key: ThreadKey, request_id: str, transition_id: str, who: str, why: str
) -> None:
    """Add to the access record."""
    await c.execute(NOTE_REDACTION, id, *key, request_id, transition_id, who, why)


async def later(db: Database, key: ThreadKey, version: int, seq_max: int) -> list[Record]:
    """Transitions behind a version, of entries through `seq_max`."""
    return await db.fetch(LIST_LATER, *key, version, seq_max)
