"""SQL of the public log."""

from collections.abc import Sequence
from dataclasses import dataclass

from foundation.storage import Connection
from services.ledger.log_row import Row
from services.ledger.log_schema import KIND_MARK, KIND_QUEUED

_INSERT = """
INSERT INTO ledger.log (workspace_id, session_id, position, kind, event_id, event_type,
    processed_at, refers_position, sealed, commitment, digest, transcript_seq, transcript_digest)
SELECT $1, $2, entry.*
FROM unnest($3::bigint[], $4::smallint[], $5::text[], $6::text[], $7::timestamptz[], $8::bigint[],
    $9::bytea[], $10::bytea[], $11::bytea[], $12::bigint[], $13::bytea[]) AS entry
"""

# `$14` are positions that stay queued, `$15` positions that are queued no longer.
_INSERT_AND_QUEUE = """
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

_ERASE = """
UPDATE ledger.log SET sealed = NULL
WHERE workspace_id = $1 AND session_id = $2 AND sealed IS NOT NULL
"""

_ACCESS = """
INSERT INTO ledger.access (id, workspace_id, session_id, action, request_id, position, digest)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""


async def insert(
    connection: Connection, workspace_id: str, session_id: str, rows: Sequence[Row]
) -> None:
    """Insert rows, and keep the index of queued rows, in one statement."""
    if not rows:
        return
    heads = [row.transcript_head for row in rows]
    columns = (
        [row.position for row in rows],
        [row.kind for row in rows],
        [row.event_id for row in rows],
        [row.event_type for row in rows],
        [row.processed_at for row in rows],
        [row.refers_position for row in rows],
        [row.sealed for row in rows],
        [row.commitment for row in rows],
        [row.digest for row in rows],
        [None if head is None else head.seq for head in heads],
        [None if head is None else head.digest for head in heads],
    )
    queued = {row.position for row in rows if row.kind == KIND_QUEUED}
    marked = {row.refers_position for row in rows if row.kind == KIND_MARK}
    if queued or marked:
        stay, leave = sorted(queued - marked), [p for p in marked - queued if p is not None]
        await connection.execute(_INSERT_AND_QUEUE, workspace_id, session_id, *columns, stay, leave)
    else:
        await connection.execute(_INSERT, workspace_id, session_id, *columns)


async def erase(connection: Connection, workspace_id: str, session_id: str) -> None:
    """Take every body and salt away; the chain still verifies. Idempotent."""
    await connection.execute(_ERASE, workspace_id, session_id)


@dataclass(frozen=True, slots=True)
class Access:
    """A look behind the public surface, to be recorded."""

    id: str
    workspace_id: str
    session_id: str
    action: str
    request_id: str
    position: int
    digest: bytes


async def record_access(connection: Connection, access: Access) -> None:
    """Add an access record."""
    await connection.execute(
        _ACCESS,
        access.id,
        access.workspace_id,
        access.session_id,
        access.action,
        access.request_id,
        access.position,
        access.digest,
    )
