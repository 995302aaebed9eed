"""SQL of redactions. `$1` is the workspace, `$2` the session."""

from collections.abc import Sequence

from foundation.storage import Connection, Record
from services.ledger.log_probe import Reader

# What an event is: the input (entry kind 1) of a turn, or the answer or result of a call.
_LOCATE = """
SELECT entry_type, operation_id, entry_seq FROM (
    SELECT 1 AS rank, log.event_type AS entry_type, NULL AS operation_id,
        (SELECT entry.seq FROM ledger.entries entry
         WHERE entry.workspace_id = $1 AND entry.session_id = $2 AND entry.turn_id = turn.turn_id
            AND entry.kind = 1) AS entry_seq
    FROM ledger.turns turn
    JOIN ledger.log log ON log.workspace_id = $1 AND log.session_id = $2
        AND log.position = turn.input_position
    WHERE turn.workspace_id = $1 AND turn.session_id = $2 AND turn.input_event_id = $3
    UNION ALL
    SELECT 2, '', call.operation_id, NULL FROM ledger.calls call
    WHERE call.workspace_id = $1 AND call.session_id = $2
        AND (call.result_event_id = $3 OR call.answer_event_id = $3)
) found
ORDER BY rank LIMIT 1
"""

_OF_OPERATION = """
SELECT log.position, log.event_id, log.sealed, log.commitment, redacted.seal
FROM ledger.calls call
JOIN ledger.log log ON log.workspace_id = $1 AND log.session_id = $2
    AND log.position IN (call.answer_position, call.result_position)
LEFT JOIN ledger.redactions redacted ON redacted.workspace_id = $1
    AND redacted.session_id = $2 AND redacted.position = log.position
WHERE call.workspace_id = $1 AND call.session_id = $2 AND call.operation_id = $3
    AND log.kind <> 3
ORDER BY log.position
FOR UPDATE OF log
"""

_OF_ENTRY = """
SELECT log.position, log.event_id, log.sealed, log.commitment, redacted.seal
FROM ledger.entries entry
JOIN ledger.turns turn ON turn.workspace_id = $1 AND turn.session_id = $2
    AND turn.turn_id = entry.turn_id
JOIN ledger.log log ON log.workspace_id = $1 AND log.session_id = $2
    AND log.position = turn.input_position
LEFT JOIN ledger.redactions redacted ON redacted.workspace_id = $1
    AND redacted.session_id = $2 AND redacted.position = log.position
WHERE entry.workspace_id = $1 AND entry.session_id = $2 AND entry.seq = $3 AND entry.kind = 1
    AND log.kind <> 3
FOR UPDATE OF log
"""

_REPLACE = """
UPDATE ledger.log SET sealed = $4
WHERE workspace_id = $1 AND session_id = $2 AND position = $3
"""

_RECORD = """
INSERT INTO ledger.redactions (workspace_id, session_id, position, seal) VALUES ($1, $2, $3, $4)
"""

_LIST = """
SELECT position, seal FROM ledger.redactions WHERE workspace_id = $1 AND session_id = $2
"""

_FORKS = """
SELECT session.workspace_id, session.session_id, session.thread_id, fork.cut_seq
FROM ledger.forks fork
JOIN ledger.sessions session USING (workspace_id, session_id)
WHERE fork.workspace_id = $1 AND fork.source_session_id = $2 AND session.deleted_at IS NULL
ORDER BY session.session_id
"""

_NOTE = """
INSERT INTO ledger.access (id, workspace_id, session_id, action, request_id, position, digest,
    reader, purpose)
SELECT $3, $1, $2, 'redact', $4, log_position, log_digest, $5, $6 FROM ledger.sessions
WHERE workspace_id = $1 AND session_id = $2
"""

Session = tuple[str, str]
"""Workspace and session."""


async def locate(reader: Reader, session: Session, event_id: str) -> Record | None:
    """What an event is: type and transcript entry of an input, or the operation."""
    return await reader.fetchrow(_LOCATE, *session, event_id)


async def of_operation(c: Connection, session: Session, operation_id: str) -> list[Record]:
    """Entries of the log that hold answer and result of a call, locked."""
    return await c.fetch(_OF_OPERATION, *session, operation_id)


async def of_entry(c: Connection, session: Session, seq: int) -> list[Record]:
    """The entry of the log that holds the message of an input, locked."""
    return await c.fetch(_OF_ENTRY, *session, seq)


async def replace(
    c: Connection, session: Session, position: int, sealed: bytes, seal: bytes
) -> None:
    """Replace a body, and record that it was redacted."""
    await c.execute(_REPLACE, *session, position, sealed)
    await c.execute(_RECORD, *session, position, seal)


async def redactions(reader: Reader, session: Session) -> dict[int, bytes]:
    """Seals of a session's redactions by position."""
    return {row["position"]: row["seal"] for row in await reader.fetch(_LIST, *session)}


async def forks(reader: Reader, session: Session) -> Sequence[Record]:
    """Threads of sessions that began with a copy of this one's history."""
    return await reader.fetch(_FORKS, *session)


async def note(
    c: Connection, session: Session, id: str, request_id: str, who: str, why: str
) -> None:
    """Add to the access record."""
    await c.execute(_NOTE, *session, id, request_id, who, why)
