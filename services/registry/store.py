"""SQL of the registry."""

from foundation.storage import Connection, Database, Record

FIND_KEYS = """
SELECT workspace_id, id, key_hash FROM registry.api_keys WHERE key_prefix = $1
"""

GET_PEPPER = """
SELECT pepper_sealed FROM registry.key_pepper WHERE id = 1
"""

OFFER_PEPPER = """
INSERT INTO registry.key_pepper (id, pepper_sealed) VALUES (1, $1) ON CONFLICT (id) DO NOTHING
"""

OFFER_WORKSPACE = """
INSERT INTO registry.workspaces (id, name) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING
"""

LOCK_WORKSPACE = """
SELECT id FROM registry.workspaces WHERE name = $1 FOR UPDATE
"""

PUT_KEY = """
INSERT INTO registry.api_keys AS k (workspace_id, id, name, key_prefix, key_hash)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (workspace_id, name) DO UPDATE
SET id = excluded.id, key_prefix = excluded.key_prefix, key_hash = excluded.key_hash,
    created_at = now()
WHERE k.key_hash <> excluded.key_hash
"""

CREATE_AGENT = """
WITH agent AS (
    INSERT INTO registry.agents (workspace_id, id, version_newest) VALUES ($1, $2, 1)
    RETURNING created_at
)
INSERT INTO registry.agent_versions (workspace_id, agent_id, version, definition_sealed, created_at)
SELECT $1, $2, 1, $3, created_at FROM agent
RETURNING created_at
"""

GET_AGENT = """
SELECT a.archived_at, a.created_at, v.version, v.definition_sealed, v.created_at AS versioned_at
FROM registry.agents a
JOIN registry.agent_versions v
  ON v.workspace_id = a.workspace_id AND v.agent_id = a.id AND v.version = a.version_newest
WHERE a.workspace_id = $1 AND a.id = $2
"""

ARCHIVE_AGENT = """
WITH archived AS (
    UPDATE registry.agents SET archived_at = coalesce(archived_at, now())
    WHERE workspace_id = $1 AND id = $2
    RETURNING workspace_id, id, version_newest, created_at, archived_at
)
SELECT a.archived_at, a.created_at, v.version, v.definition_sealed, v.created_at AS versioned_at
FROM archived a
JOIN registry.agent_versions v
  ON v.workspace_id = a.workspace_id AND v.agent_id = a.id AND v.version = a.version_newest
"""

CREATE_ENVIRONMENT = """
INSERT INTO registry.environments (workspace_id, id, name_utf8, definition_sealed)
VALUES ($1, $2, $3, $4)
ON CONFLICT (workspace_id, name_utf8) WHERE archived_at IS NULL DO NOTHING
RETURNING definition_sealed, created_at, updated_at, archived_at
"""

GET_ENVIRONMENT = """
SELECT definition_sealed, created_at, updated_at, archived_at
FROM registry.environments WHERE workspace_id = $1 AND id = $2
"""

DELETE_ENVIRONMENT = """
WITH replay AS (DELETE FROM registry.replays WHERE workspace_id = $1 AND resource_id = $2)
DELETE FROM registry.environments WHERE workspace_id = $1 AND id = $2 RETURNING id
"""

# $3 is the wanted version, 0 for the newest. Always one row: what is missing is NULL.
RESOLVE = """
SELECT a.id IS NOT NULL AS agent_found, a.archived_at, a.created_at,
       v.version, v.definition_sealed, v.created_at AS versioned_at,
       e.id IS NOT NULL AS environment_found, e.definition_sealed AS environment_sealed,
       e.created_at AS environment_created_at, e.updated_at AS environment_updated_at,
       e.archived_at AS environment_archived_at
FROM (SELECT 1) one
LEFT JOIN registry.agents a ON a.workspace_id = $1 AND a.id = $2
LEFT JOIN registry.agent_versions v
  ON v.workspace_id = a.workspace_id AND v.agent_id = a.id
 AND v.version = CASE WHEN $3::bigint = 0 THEN a.version_newest ELSE $3 END
LEFT JOIN registry.environments e ON e.workspace_id = $1 AND e.id = $4
"""


async def find_keys(db: Database, prefix: bytes) -> list[Record]:
    """Keys whose hash begins with `prefix`: workspace_id, id, key_hash."""
    return await db.fetch(FIND_KEYS, prefix)


async def pepper(db: Database) -> bytes | None:
    """The sealed pepper of key hashes; None before the first start."""
    found: bytes | None = await db.fetchval(GET_PEPPER)
    return found


async def offer_pepper(db: Database, sealed: bytes) -> None:
    """Store the pepper unless there is one."""
    await db.commit_one("registry.create_pepper", OFFER_PEPPER, sealed)


async def lock_workspace(c: Connection, id: str, name: str) -> str:
    """Create the workspace unless its name exists; returns the id of the one that does."""
    await c.execute(OFFER_WORKSPACE, id, name)
    found: str = await c.fetchval(LOCK_WORKSPACE, name)
    return found


async def put_key(
    c: Connection, workspace: str, id: str, name: str, prefix: bytes, hash: bytes
) -> None:
    """Create the key with this name, or replace it when its hash differs."""
    await c.execute(PUT_KEY, workspace, id, name, prefix, hash)


async def create_agent(db: Database, workspace: str, id: str, sealed: bytes) -> Record:
    """Store version 1; returns created_at."""
    rows = await db.commit_one("registry.create_agent", CREATE_AGENT, workspace, id, sealed)
    return rows[0]


async def get_agent(db: Database, workspace: str, id: str) -> Record | None:
    """The newest version."""
    return await db.fetchrow(GET_AGENT, workspace, id)


async def archive_agent(db: Database, workspace: str, id: str) -> Record | None:
    """Set archived_at unless it is set; the newest version, or None for an unknown id."""
    rows = await db.commit_one("registry.archive_agent", ARCHIVE_AGENT, workspace, id)
    return rows[0] if rows else None


async def create_environment(
    db: Database, workspace: str, id: str, name: bytes, sealed: bytes
) -> Record | None:
    """Store an environment; None when the name is in use."""
    rows = await db.commit_one(
        "registry.create_environment", CREATE_ENVIRONMENT, workspace, id, name, sealed
    )
    return rows[0] if rows else None


async def get_environment(db: Database, workspace: str, id: str) -> Record | None:
    """One environment."""
    return await db.fetchrow(GET_ENVIRONMENT, workspace, id)


async def delete_environment(db: Database, workspace: str, id: str) -> bool:
    """Remove an environment; False when there is none."""
    rows = await db.commit_one("registry.delete_environment", DELETE_ENVIRONMENT, workspace, id)
    return bool(rows)


async def resolve(
    db: Database, workspace: str, agent: str, version: int, environment: str
) -> Record:
    """Agent version and environment in one row; missing ones are NULL."""
    row = await db.fetchrow(RESOLVE, workspace, agent, version, environment)
    assert row is not None
    return row
