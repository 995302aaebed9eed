"""SQL of the collector: what is due, condemned, swept. Order of locks as in `store.py`."""

from collections.abc import Sequence

from foundation.storage import Connection, Database, Record
from services.files.store import GIVE_UP_BLOBS, LOCK_BLOBS, SessionKey, admit

# $1 grace in milliseconds, $2 and $3 the owner before.
LIST_DUE = """
SELECT DISTINCT workspace_id, session_id FROM files.artifacts
WHERE (workspace_id, session_id) > ($2, $3) AND (
    state < 3 AND staged_at <= now() - $1 * interval '1 millisecond'
    OR state = 3 AND condemned_at <= now() - $1 * interval '1 millisecond'
)
ORDER BY workspace_id, session_id LIMIT $4
"""

CONDEMN = """
UPDATE files.artifacts SET state = 3, condemned_at = now()
WHERE workspace_id = $1 AND session_id = $2 AND artifact_id = ANY($3)
  AND state < 3 AND staged_at <= now() - $4 * interval '1 millisecond'
RETURNING true
"""

DELETE = """
UPDATE files.artifacts SET state = 4
WHERE workspace_id = $1 AND session_id = $2 AND artifact_id = ANY($3)
  AND state = 3 AND condemned_at <= now() - $4 * interval '1 millisecond'
RETURNING true
"""

WORKSPACES_TO_CLEAR = """
SELECT DISTINCT workspace_id FROM files.blobs WHERE state = 3 ORDER BY workspace_id
"""

KNOWN_BLOBS = """
SELECT workspace_id, blob_id FROM files.blobs
WHERE state < 3 AND (workspace_id, blob_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
"""


async def due(db: Database, grace_ms: int, after: SessionKey, limit: int) -> list[Record]:
    """Sessions with artifacts that are neither new nor freshly condemned."""
    return await db.fetch(LIST_DUE, grace_ms, *after, limit)


async def condemn(c: Connection, key: SessionKey, ids: Sequence[str], grace_ms: int) -> int:
    """Condemn those of the artifacts that are old enough; how many."""
    if not await admit(c, key):
        return 0
    return len(await c.fetch(CONDEMN, *key, list(ids), grace_ms))


async def sweep(c: Connection, key: SessionKey, ids: Sequence[str], grace_ms: int) -> int:
    """Delete those of the artifacts that are condemned for long enough, and give up blobs that
    nobody else needs; how many artifacts."""
    if not await admit(c, key):
        return 0
    blobs = [row["blob_id"] for row in await c.fetch(LOCK_BLOBS, key[0], [key[1]], list(ids))]
    deleted = await c.fetch(DELETE, *key, list(ids), grace_ms)
    await c.execute(GIVE_UP_BLOBS, key[0], blobs)
    return len(deleted)


async def workspaces_to_clear(db: Database) -> list[str]:
    """Workspaces that have blobs which were given up and whose objects are not removed yet."""
    return [row["workspace_id"] for row in await db.fetch(WORKSPACES_TO_CLEAR)]


async def known(db: Database, blobs: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of the blobs (workspace, id) that are needed."""
    rows = await db.fetch(KNOWN_BLOBS, [one[0] for one in blobs], [one[1] for one in blobs])
    return {(row["workspace_id"], row["blob_id"]) for row in rows}
