"""SQL of redactions."""

from collections.abc import Sequence

from foundation.storage import Connection, Database, Record
from services.transcript.chain import ThreadKey

ENTRY = """
SELECT e.kind, e.commitment, r.seq IS NOT NULL AS is_redacted
FROM transcript.entries e
LEFT JOIN transcript.redactions r
    ON r.workspace_id = $1 AND r.session_id = $2 AND r.thread_id = $3 AND r.seq = e.seq
WHERE e.workspace_id = $1 AND e.session_id = $2 AND e.thread_id = $3 AND e.seq = $4
"""

INSERT = """
INSERT INTO transcript.redactions (workspace_id, session_id, thread_id, seq, seal)
SELECT $1, $2, $3, given.* FROM unnest($4::bigint[], $5::bytea[]) AS given
"""

ERASE = """
UPDATE transcript.entries SET content = NULL
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND seq = $4
  AND content IS NOT NULL
"""

NOTE = """
INSERT INTO transcript.access
    (workspace_id, session_id, thread_id, access_id, action, request_id, seq, digest, reader,
     purpose)
VALUES ($1, $2, $3, $4, 'redact', $5, $6, ''::bytea, $7, $8)
"""

LIST = """
SELECT seq, seal FROM transcript.redactions
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND seq = ANY($4::bigint[])
"""

LIST_ALL = """
SELECT seq, seal FROM transcript.redactions
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
"""


async def entry(c: Connection, key: ThreadKey, seq: int) -> Record | None:
    """Kind and commitment of an entry, and whether it was redacted."""
    return await c.fetchrow(ENTRY, *key, seq)


async def insert(c: Connection, key: ThreadKey, seals: dict[int, bytes]) -> None:
    """Record redactions by sequence."""
    await c.execute(INSERT, *key, list(seals), list(seals.values()))


async def erase(c: Connection, key: ThreadKey, seq: int) -> None:
    """Erase the content of an entry, with its salt."""
    await c.execute(ERASE, *key, seq)


async def note(
    c: Connection, key: ThreadKey, access_id: str, request_id: str, seq: int, who: str, why: str
) -> None:
    """Add to the access record."""
    await c.execute(NOTE, *key, access_id, request_id, seq, who, why)


async def redactions(
    db: Database | Connection, key: ThreadKey, seqs: Sequence[int]
) -> dict[int, bytes]:
    """Seals of redactions by sequence, of those of the entries that were redacted."""
    if not seqs:
        return {}
    return {row["seq"]: row["seal"] for row in await db.fetch(LIST, *key, list(seqs))}


async def all_redactions(c: Connection, key: ThreadKey) -> dict[int, bytes]:
    """Seals of a thread's redactions by sequence."""
    return {row["seq"]: row["seal"] for row in await c.fetch(LIST_ALL, *key)}
