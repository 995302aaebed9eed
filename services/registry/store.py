"""SQL of the registry."""

from datetime import datetime

from asyncpg.exceptions import UniqueViolationError

from foundation.storage import Connection, Database, Record

Place = tuple[datetime, str]
"""Where a page ended: creation and id of its last row."""

PAGE_BYTES_MAX = 8 * 2**20
"""Bytes of definitions behind which a page ends early; its first row may be larger."""

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

# A workspace of another installation comes to live here.
LOCK_DEFINITIONS = """
LOCK TABLE registry.workspaces, registry.agents, registry.environments IN SHARE ROW EXCLUSIVE MODE
"""

LOOK_AROUND = """
SELECT (SELECT count(*) FROM registry.workspaces) AS workspaces,
    EXISTS (SELECT FROM registry.workspaces WHERE id = $1) AS is_here,
    EXISTS (SELECT FROM registry.agents) OR EXISTS (SELECT FROM registry.environments) AS is_used
"""

RENAME_WORKSPACE = """
UPDATE registry.workspaces SET id = $1
"""

MOVE_KEYS = """
UPDATE registry.api_keys SET workspace_id = $1
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

# $3 is the wanted version, NULL for the newest. No row: no agent; NULLs: no such version.
GET_AGENT = """
SELECT a.archived_at, a.created_at, v.version, v.definition_sealed, v.created_at AS versioned_at
FROM registry.agents a
LEFT JOIN registry.agent_versions v
  ON v.workspace_id = a.workspace_id AND v.agent_id = a.id
 AND v.version = coalesce($3::bigint, a.version_newest)
WHERE a.workspace_id = $1 AND a.id = $2
"""

# Locks alone: what this statement waited for is visible only to the next one.
LOCK_AGENT = """
SELECT id FROM registry.agents WHERE workspace_id = $1 AND id = $2 FOR UPDATE
"""

ADD_VERSION = """
WITH agent AS (
    UPDATE registry.agents SET version_newest = $3 WHERE workspace_id = $1 AND id = $2
    RETURNING archived_at, created_at
), added AS (
    INSERT INTO registry.agent_versions (workspace_id, agent_id, version, definition_sealed)
    VALUES ($1, $2, $3, $4)
    RETURNING version, definition_sealed, created_at
)
SELECT agent.archived_at, agent.created_at,
       added.version, added.definition_sealed, added.created_at AS versioned_at
FROM agent, added
"""

# A page is at most $7 rows and, behind its first row, at most $8 bytes of definitions. `found`
# counts the rows before that.
LIST_AGENTS = """
SELECT * FROM (
    SELECT a.id, a.archived_at, a.created_at,
           v.version, v.definition_sealed, v.created_at AS versioned_at, count(*) OVER () AS found,
           row_number() OVER newest AS row,
           sum(octet_length(v.definition_sealed)) OVER newest AS bytes
    FROM (
        SELECT * FROM registry.agents
        WHERE workspace_id = $1 AND ($2::boolean OR archived_at IS NULL)
          AND created_at >= coalesce($3::timestamptz, '-infinity')
          AND created_at < coalesce($4::timestamptz, 'infinity')
          AND (created_at, id) < (coalesce($5::timestamptz, 'infinity'), $6::text)
        ORDER BY created_at DESC, id DESC
        LIMIT $7
    ) a
    JOIN registry.agent_versions v
      ON v.workspace_id = a.workspace_id AND v.agent_id = a.id AND v.version = a.version_newest
    WINDOW newest AS (ORDER BY a.created_at DESC, a.id DESC)
) page WHERE row = 1 OR bytes <= $8 ORDER BY row
"""

LIST_VERSIONS = """
SELECT * FROM (
    SELECT a.archived_at, a.created_at,
           v.version, v.definition_sealed, v.created_at AS versioned_at, count(*) OVER () AS found,
           row_number() OVER newest AS row,
           sum(octet_length(v.definition_sealed)) OVER newest AS bytes
    FROM registry.agents a
    JOIN (
        SELECT * FROM registry.agent_versions
        WHERE workspace_id = $1 AND agent_id = $2 AND version < $3
        ORDER BY version DESC
        LIMIT $4
    ) v ON true
    WHERE a.workspace_id = $1 AND a.id = $2
    WINDOW newest AS (ORDER BY v.version DESC)
) page WHERE row = 1 OR bytes <= $5 ORDER BY row
"""

ARCHIVE_AGENT = """
UPDATE registry.agents SET archived_at = coalesce(archived_at, now())
WHERE workspace_id = $1 AND id = $2
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

LOCK_ENVIRONMENT = """
SELECT definition_sealed, created_at, updated_at, archived_at
FROM registry.environments WHERE workspace_id = $1 AND id = $2 FOR UPDATE
"""

PUT_ENVIRONMENT = """
UPDATE registry.environments SET name_utf8 = $3, definition_sealed = $4, updated_at = now()
WHERE workspace_id = $1 AND id = $2
RETURNING definition_sealed, created_at, updated_at, archived_at
"""

ARCHIVE_ENVIRONMENT = """
UPDATE registry.environments
SET archived_at = coalesce(archived_at, now()),
    updated_at = CASE WHEN archived_at IS NULL THEN now() ELSE updated_at END
WHERE workspace_id = $1 AND id = $2
RETURNING definition_sealed, created_at, updated_at, archived_at
"""

LIST_ENVIRONMENTS = """
SELECT * FROM (
    SELECT e.*, count(*) OVER () AS found,
           row_number() OVER newest AS row,
           sum(octet_length(definition_sealed)) OVER newest AS bytes
    FROM (
        SELECT * FROM registry.environments
        WHERE workspace_id = $1 AND ($2::boolean OR archived_at IS NULL)
          AND (created_at, id) < (coalesce($3::timestamptz, 'infinity'), $4::text)
        ORDER BY created_at DESC, id DESC
        LIMIT $5
    ) e
    WINDOW newest AS (ORDER BY created_at DESC, id DESC)
) page WHERE row = 1 OR bytes <= $6 ORDER BY row
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


async def get_agent(
    db: Database, workspace: str, id: str, version: int | None = None
) -> Record | None:
    """One version, the newest for None; its columns are NULL when only the version is missing."""
    return await db.fetchrow(GET_AGENT, workspace, id, version)


async def lock_agent(c: Connection, workspace: str, id: str) -> Record | None:
    """The newest version; no other transaction adds one meanwhile."""
    await c.fetchrow(LOCK_AGENT, workspace, id)
    return await c.fetchrow(GET_AGENT, workspace, id, None)


async def add_version(
    c: Connection, workspace: str, id: str, version: int, sealed: bytes
) -> Record:
    """Store the next version of a locked agent."""
    row = await c.fetchrow(ADD_VERSION, workspace, id, version, sealed)
    assert row is not None
    return row


async def list_agents(
    db: Database,
    workspace: str,
    after: Place | None,
    *,
    include_archived: bool,
    since: datetime | None,
    before: datetime | None,
    limit: int,
) -> list[Record]:
    """Newest versions of the agents behind `after`, newest agent first; `found` of them at all."""
    moment, id = after or (None, "")
    args = (include_archived, since, before, moment, id, limit, PAGE_BYTES_MAX)
    return await db.fetch(LIST_AGENTS, workspace, *args)


async def list_versions(
    db: Database, workspace: str, id: str, before: int, limit: int
) -> list[Record]:
    """Versions below `before`, newest first."""
    return await db.fetch(LIST_VERSIONS, workspace, id, before, limit, PAGE_BYTES_MAX)


async def archive_agent(db: Database, workspace: str, id: str) -> Record | None:
    """Set archived_at unless it is set; the newest version, or None for an unknown id."""
    async with db.commit("registry.archive_agent") as c:
        await c.execute(ARCHIVE_AGENT, workspace, id)
        return await c.fetchrow(GET_AGENT, workspace, id, None)


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


async def lock_environment(c: Connection, workspace: str, id: str) -> Record | None:
    """One environment; no other transaction changes it meanwhile."""
    return await c.fetchrow(LOCK_ENVIRONMENT, workspace, id)


async def put_environment(
    c: Connection, workspace: str, id: str, name: bytes, sealed: bytes
) -> Record | None:
    """Change a locked environment; None when the name is in use, after which nothing commits."""
    try:
        return await c.fetchrow(PUT_ENVIRONMENT, workspace, id, name, sealed)
    except UniqueViolationError:
        return None


async def archive_environment(db: Database, workspace: str, id: str) -> Record | None:
    """Set archived_at unless it is set; None for an unknown id."""
    rows = await db.commit_one("registry.archive_environment", ARCHIVE_ENVIRONMENT, workspace, id)
    return rows[0] if rows else None


async def list_environments(
    db: Database, workspace: str, after: Place | None, *, include_archived: bool, limit: int
) -> list[Record]:
    """Environments behind `after`, newest first; `found` of them at all."""
    moment, id = after or (None, "")
    args = (include_archived, moment, id, limit, PAGE_BYTES_MAX)
    return await db.fetch(LIST_ENVIRONMENTS, workspace, *args)


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
