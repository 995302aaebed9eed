"""SQL of redactions: steps of one transaction under the lock of the thread's fence, and reads."""

from collections.abc import Sequence

from foundation.storage import Connection, Database, Record
from services.journal.rows import ThreadKey

LOCK = """
SELECT f.is_deleted,
    o.operation_id, o.kind, o.state, o.turn_id, o.round, o.attempt_epoch, o.attempt_number,
    o.block_index, o.owner, o.tool_name, o.tool_version, o.nonce_digest, o.started_at,
    o.deadline_at, o.snapshot_id, o.answer_digest,
    d.source, d.projection, d.redactor, FALSE AS has_late_outcome, r.sealed AS redaction
FROM journal.fences f
JOIN journal.operations o USING (workspace_id, session_id, thread_id)
LEFT JOIN journal.outcomes d
    ON d.workspace_id = $1 AND d.session_id = $2 AND d.thread_id = $3
    AND d.operation_id = o.operation_id AND d.role = 2
LEFT JOIN journal.redactions r
    ON r.workspace_id = $1 AND r.session_id = $2 AND r.thread_id = $3
    AND r.operation_id = o.operation_id
WHERE f.workspace_id = $1 AND f.session_id = $2 AND f.thread_id = $3 AND o.operation_id = $4
FOR UPDATE OF f, o
"""

INSERT = """
INSERT INTO journal.redactions (workspace_id, session_id, thread_id, operation_id, sealed)
VALUES ($1, $2, $3, $4, $5)
"""

ERASE = """
UPDATE journal.outcomes SET raw = NULL, projection = NULL
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND operation_id = $4
  AND (raw IS NOT NULL OR projection IS NOT NULL)
"""

ERASE_INPUT = """
UPDATE journal.operations SET input = NULL
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND operation_id = $4
  AND input IS NOT NULL
RETURNING 1
"""

NOTE = """
INSERT INTO journal.access
    (workspace_id, session_id, thread_id, access_id, request_id, reader, purpose, operations)
VALUES ($1, $2, $3, $4, $5, $6, $7, 1)
"""

LIST = """
SELECT operation_id, sealed FROM journal.redactions
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
  AND operation_id = ANY($4::text[])
"""


async def locked(c: Connection, key: ThreadKey, operation_id: str) -> Record | None:
    """An operation with its outcome and the record of its redaction, locked."""
    return await c.fetchrow(LOCK, *key, operation_id)


async def insert(c: Connection, key: ThreadKey, operation_id: str, sealed: bytes) -> None:
    """Record a redaction."""
    await c.execute(INSERT, *key, operation_id, sealed)


async def erase(c: Connection, key: ThreadKey, operation_id: str) -> None:
    """Erase all bodies of an operation's outcomes."""
    await c.execute(ERASE, *key, operation_id)


async def erase_input(c: Connection, key: ThreadKey, operation_id: str) -> bool:
    """Erase the input of an operation; False when there is none."""
    return await c.fetchval(ERASE_INPUT, *key, operation_id) is not None


async def note(
    c: Connection, key: ThreadKey, access_id: str, request_id: str, reader: str, purpose: str
) -> None:
    """Add to the access record."""
    await c.execute(NOTE, *key, access_id, request_id, reader, purpose)


async def redactions(
    db: Database, key: ThreadKey, operation_ids: Sequence[str]
) -> dict[str, bytes]:
    """Sealed records of redactions by operation, for those that were redacted."""
    rows = await db.fetch(LIST, *key, list(operation_ids))
    return {row["operation_id"]: row["sealed"] for row in rows}
