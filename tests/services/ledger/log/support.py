"""A log under test: sessions whose head row is kept by a table of the tests' own."""

import json as stdlib_json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from foundation.storage import Connection, Database, SealRing
from services.ledger.log_probe import Reader, SessionHead
from services.ledger.log_row import KIND_MARK, KIND_QUEUED, LogHead, Planned
from services.ledger.log_writer import Draft, plan

RING = SealRing("k1", {"k1": bytes(32)})
WORKSPACE = "wrkspc_1"

_TABLE = """
CREATE TABLE heads (workspace_id text, session_id text PRIMARY KEY, log_position bigint NOT NULL,
    log_digest bytea NOT NULL, last_processed_at timestamptz,
    deleted boolean NOT NULL DEFAULT false)
"""

# `$14` are positions that stay queued, `$15` positions that are queued no longer.
_INSERT = """
WITH entered AS (
    INSERT INTO ledger.log (workspace_id, session_id, position, kind, event_id, event_type,
        processed_at, refers_position, sealed, commitment, digest, transcript_seq,
        transcript_digest)
    SELECT $1, $2, entry.*
    FROM unnest($3::bigint[], $4::smallint[], $5::text[], $6::text[], $7::timestamptz[],
        $8::bigint[], $9::bytea[], $10::bytea[], $11::bytea[], $12::bigint[], $13::bytea[])
        AS entry
), left_queue AS (
    DELETE FROM ledger.queued
    WHERE workspace_id = $1 AND session_id = $2 AND position = ANY ($15::bigint[])
)
INSERT INTO ledger.queued (workspace_id, session_id, position)
SELECT $1, $2, unnest($14::bigint[])
"""


async def insert(c: Connection, planned: Planned) -> None:
    rows = planned.rows
    names = (
        "position kind event_id event_type processed_at refers_position sealed commitment digest"
        " transcript_seq transcript_digest"
    )
    columns = [[getattr(row, name) for row in rows] for name in names.split()]
    queued = {row.position for row in rows if row.kind == KIND_QUEUED}
    marked = {row.refers_position for row in rows if row.kind == KIND_MARK}
    queue = [list(queued - marked), list(marked - queued)]
    await c.execute(_INSERT, planned.workspace_id, planned.session_id, *columns, *queue)


async def open_log(dsn: str) -> Database:
    db = await Database.open(dsn, service="ledger")
    async with db.commit("ledger.test") as c:
        await c.execute(_TABLE)
    return db


async def create(db: Database, session_id: str, workspace_id: str = WORKSPACE) -> str:
    async with db.commit("ledger.test") as c:
        await c.execute("INSERT INTO heads VALUES ($1, $2, 0, '', NULL)", workspace_id, session_id)
    return session_id


async def append_in(
    c: Connection, session_id: str, drafts: Sequence[Draft], now: datetime | None = None
) -> Planned:
    row = await c.fetchrow("SELECT * FROM heads WHERE session_id = $1 FOR UPDATE", session_id)
    assert row is not None
    planned = plan(
        RING, row["workspace_id"], session_id, LogHead.of(row), drafts, now or datetime.now(UTC)
    )
    await insert(c, planned)
    await c.execute(
        "UPDATE heads SET log_position = $2, log_digest = $3, last_processed_at = $4"
        " WHERE session_id = $1",
        session_id,
        planned.head.position,
        planned.head.digest,
        planned.head.last_processed_at,
    )
    return planned


async def append(
    db: Database, session_id: str, *drafts: Draft, now: datetime | None = None
) -> Planned:
    async with db.commit("ledger.test") as c:
        return await append_in(c, session_id, drafts, now)


async def probe(reader: Reader, workspace_id: str, session_id: str) -> SessionHead | None:
    row = await reader.fetchrow(
        "SELECT * FROM heads WHERE workspace_id = $1 AND session_id = $2",
        workspace_id,
        session_id,
    )
    return None if row is None else SessionHead(LogHead.of(row), row["deleted"])


async def delete(db: Database, session_id: str) -> None:
    async with db.commit("ledger.test") as c:
        await append_in(c, session_id, [event("gone", "session.deleted")])
        await c.execute("UPDATE heads SET deleted = true WHERE session_id = $1", session_id)


async def head_of(db: Database, session_id: str) -> LogHead:
    row = await db.fetchrow("SELECT * FROM heads WHERE session_id = $1", session_id)
    assert row is not None
    return LogHead.of(row)


def body(event_id: str, event_type: str, **members: Any) -> bytes:
    return stdlib_json.dumps(
        {"id": event_id, "type": event_type, **members}, separators=(",", ":")
    ).encode()


def event(event_id: str, event_type: str = "agent.message", **members: Any) -> Draft:
    return Draft.event(event_id, event_type, body(event_id, event_type, **members))


def queued(event_id: str, event_type: str = "user.message", **members: Any) -> Draft:
    return Draft.queued(event_id, event_type, body(event_id, event_type, **members))


def mark(
    event_id: str, refers_position: int | None = None, event_type: str = "user.message"
) -> Draft:
    return Draft.mark(event_id, event_type, refers_position)
