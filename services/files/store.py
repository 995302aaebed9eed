"""SQL of the files authority: staging, reading, copying, erasing; `sweep_store.py` has the rest.

Whoever writes locks in this order: the session, blobs by id, artifacts.
"""

from collections.abc import Sequence
from typing import NamedTuple

from foundation.storage import Connection, Database, Record

SessionKey = tuple[str, str]
"""Workspace, session."""

BLOB_STAGED, BLOB_STORED, BLOB_DELETED = 1, 2, 3

ADDRESS_BYTES = 16

# No row comes back when the session has a tombstone.
ADMIT = """
INSERT INTO files.sessions AS s (workspace_id, session_id, is_deleted) VALUES ($1, $2, false)
ON CONFLICT (workspace_id, session_id) DO UPDATE SET is_deleted = false WHERE NOT s.is_deleted
RETURNING true
"""

IS_DELETED = """
SELECT is_deleted FROM files.sessions WHERE workspace_id = $1 AND session_id = $2
"""

# $3 is used for a content that is not there yet. The update changes nothing, but locks the row
# against a sweep that would give it up.
TAKE_BLOB = """
INSERT INTO files.blobs AS b (workspace_id, blob_id, address, size_bytes, state)
VALUES ($1, $2, $3, $4, 1)
ON CONFLICT (workspace_id, address) WHERE state < 3 DO UPDATE SET size_bytes = b.size_bytes
RETURNING blob_id, state
"""

# $10 is the state: live where the bytes are stored already.
STAGE = """
INSERT INTO files.artifacts (workspace_id, session_id, artifact_id, blob_id, sha256, media_type,
    size_bytes, role, operation_id, state, staged_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, now())
ON CONFLICT (workspace_id, session_id, artifact_id) DO UPDATE
SET blob_id = excluded.blob_id, operation_id = excluded.operation_id, state = excluded.state,
    staged_at = excluded.staged_at, condemned_at = NULL
"""

# No row comes back when the session was erased meanwhile.
STORED = """
WITH blob AS (
    UPDATE files.blobs SET state = 2 WHERE workspace_id = $1 AND blob_id = $4 AND state < 3
    RETURNING blob_id
)
UPDATE files.artifacts a SET state = 2, condemned_at = NULL FROM blob
WHERE a.workspace_id = $1 AND a.session_id = $2 AND a.artifact_id = $3
  AND a.blob_id = blob.blob_id AND a.state < 4
RETURNING true
"""

GET = """
SELECT a.artifact_id, a.blob_id, a.sha256, a.media_type, a.size_bytes, a.role
FROM files.artifacts a JOIN files.blobs b USING (workspace_id, blob_id)
WHERE a.workspace_id = $1 AND a.session_id = $2 AND a.artifact_id = $3
  AND a.state IN (2, 3) AND b.state = 2
"""

# $2 are the sessions to look in, $3 the artifacts.
LOCK_BLOBS = """
SELECT blob_id FROM files.blobs WHERE workspace_id = $1 AND blob_id IN (
    SELECT blob_id FROM files.artifacts
    WHERE workspace_id = $1 AND session_id = ANY($2) AND artifact_id = ANY($3)
)
ORDER BY blob_id FOR UPDATE
"""

# A statement of its own, so that it sees what whoever held the locks has done. $2 source, $3
# target, $4 artifacts.
COPY = """
INSERT INTO files.artifacts (workspace_id, session_id, artifact_id, blob_id, sha256, media_type,
    size_bytes, role, operation_id, state, staged_at)
SELECT DISTINCT ON (a.artifact_id) a.workspace_id, $3, a.artifact_id, a.blob_id, a.sha256,
    a.media_type, a.size_bytes, a.role, a.operation_id, 2, now()
FROM files.artifacts a JOIN files.blobs b USING (workspace_id, blob_id)
WHERE a.workspace_id = $1 AND a.session_id IN ($2, $3) AND a.artifact_id = ANY($4)
  AND a.state IN (2, 3) AND b.state = 2
ON CONFLICT (workspace_id, session_id, artifact_id) DO UPDATE
SET blob_id = excluded.blob_id, state = 2, staged_at = excluded.staged_at, condemned_at = NULL
RETURNING artifact_id
"""

LIST = """
SELECT artifact_id, sha256, media_type, size_bytes, role, state, operation_id, staged_at
FROM files.artifacts WHERE workspace_id = $1 AND session_id = $2 AND artifact_id > $3
ORDER BY artifact_id LIMIT $4
"""

BURY = """
INSERT INTO files.sessions (workspace_id, session_id, is_deleted) VALUES ($1, $2, true)
ON CONFLICT (workspace_id, session_id) DO UPDATE SET is_deleted = true
"""

LOCK_BLOBS_OF_SESSION = """
SELECT blob_id FROM files.blobs WHERE workspace_id = $1 AND blob_id IN (
    SELECT blob_id FROM files.artifacts WHERE workspace_id = $1 AND session_id = $2
)
ORDER BY blob_id FOR UPDATE
"""

ERASE = """
DELETE FROM files.artifacts WHERE workspace_id = $1 AND session_id = $2
"""

# What no artifact needs. Only under the locks of these blobs.
GIVE_UP_BLOBS = """
UPDATE files.blobs b SET state = 3
WHERE b.workspace_id = $1 AND b.blob_id = ANY($2) AND b.state < 3 AND NOT EXISTS (
    SELECT FROM files.artifacts a
    WHERE a.workspace_id = $1 AND a.blob_id = b.blob_id AND a.state < 4
)
"""

LIST_GIVEN_UP = """
SELECT blob_id FROM files.blobs WHERE workspace_id = $1 AND state = 3 ORDER BY blob_id LIMIT $2
"""

FORGET_BLOB = """
DELETE FROM files.blobs WHERE workspace_id = $1 AND blob_id = $2 AND state = 3
"""

GET_ADDRESS_KEY = """
SELECT key_sealed FROM files.address_keys WHERE workspace_id = $1
"""

OFFER_ADDRESS_KEY = """
INSERT INTO files.address_keys (workspace_id, key_sealed) VALUES ($1, $2)
ON CONFLICT (workspace_id) DO NOTHING
"""


class Taken(NamedTuple):
    """A blob: its id, and whether its bytes are stored."""

    blob_id: str
    is_stored: bool


class NewArtifact(NamedTuple):
    """An artifact to be, in the order of STAGE's columns behind the blob."""

    sha256: bytes
    media_type: str
    size_bytes: int
    role: int
    operation_id: str


async def admit(c: Connection, key: SessionKey) -> bool:
    """Lock the session; False when it is deleted."""
    return await c.fetchval(ADMIT, *key) is not None


async def is_deleted(db: Database, key: SessionKey) -> bool:
    """Whether the session has a tombstone."""
    return bool(await db.fetchval(IS_DELETED, *key))


async def take_blob(
    c: Connection, workspace_id: str, blob_id: str, address: bytes, size_bytes: int
) -> Taken:
    """Lock the blob with this address; it gets `blob_id` if there is none."""
    row = await c.fetchrow(TAKE_BLOB, workspace_id, blob_id, address, size_bytes)
    assert row is not None
    return Taken(row["blob_id"], row["state"] == BLOB_STORED)


async def stage(
    c: Connection, key: SessionKey, artifact_id: str, blob_id: str, new: NewArtifact, state: int
) -> None:
    """Store or revive an artifact."""
    await c.execute(STAGE, *key, artifact_id, blob_id, *new, state)


async def note_stored(db: Database, key: SessionKey, artifact_id: str, blob_id: str) -> bool:
    """Note that the bytes are stored; False when the artifact is gone."""
    return bool(await db.commit_one("files.store", STORED, *key, artifact_id, blob_id))


async def get(db: Database, key: SessionKey, artifact_id: str) -> Record | None:
    """An artifact that can be read."""
    return await db.fetchrow(GET, *key, artifact_id)


async def copy(c: Connection, source: SessionKey, target: SessionKey, ids: Sequence[str]) -> int:
    """Give the target what it or the source has of these; how many."""
    workspace_id = target[0]
    await c.fetch(LOCK_BLOBS, workspace_id, [source[1], target[1]], list(ids))
    return len(await c.fetch(COPY, workspace_id, source[1], target[1], list(ids)))


async def artifacts(db: Database, key: SessionKey, after: str, limit: int) -> list[Record]:
    """The session's artifacts behind an id, by id."""
    return await db.fetch(LIST, *key, after, limit)


async def erase(c: Connection, key: SessionKey) -> None:
    """Delete the session's artifacts for ever, and give up the blobs that nobody else needs."""
    await c.execute(BURY, *key)
    blobs = [row["blob_id"] for row in await c.fetch(LOCK_BLOBS_OF_SESSION, *key)]
    await c.execute(ERASE, *key)
    await c.execute(GIVE_UP_BLOBS, key[0], blobs)


async def given_up(db: Database, workspace_id: str, limit: int) -> list[str]:
    """Blobs whose objects are to be removed."""
    return [row["blob_id"] for row in await db.fetch(LIST_GIVEN_UP, workspace_id, limit)]


async def forget_blob(db: Database, workspace_id: str, blob_id: str) -> None:
    """The blob's object is gone: so is its row."""
    await db.commit_one("files.forget", FORGET_BLOB, workspace_id, blob_id)


async def address_key(db: Database, workspace_id: str) -> bytes | None:
    """The sealed key of a workspace's addresses."""
    found: bytes | None = await db.fetchval(GET_ADDRESS_KEY, workspace_id)
    return found


async def offer_address_key(db: Database, workspace_id: str, sealed: bytes) -> None:
    """Store a workspace's key unless it has one."""
    await db.commit_one("files.create_address_key", OFFER_ADDRESS_KEY, workspace_id, sealed)
