"""SQL of redactions. `$1` is the workspace, `$2` the session."""

from collections.abc import Sequence

from foundation.storage import Connection, Record
from services.ledger.log_probe import Reader

# What an event is: an input (entry kind 1) of a turn or what came with it, a call of an answer, or
# the answer to or result of a call. 6 is a turn that is over.
_LOCATE = """
SELECT entry_type, operation_id, entry_seq, is_over FROM (
    SELECT 1 AS rank, log.event_type AS entry_type, NULL AS operation_id,
        (SELECT entry.seq FROM ledger.entries entry
         WHERE entry.workspace_id = $1 AND entry.session_id = $2 AND entry.turn_id = turn.turn_id
            AND entry.kind = 1) AS entry_seq,
        TRUE AS is_over
    FROM ledger.turns turn
    JOIN ledger.log log ON log.workspace_id = $1 AND log.session_id = $2
        AND log.position IN (turn.input_position, turn.system_position)
    WHERE turn.workspace_id = $1 AND turn.session_id = $2 AND log.event_id = $3
        AND (turn.input_event_id = $3 OR turn.system_event_id = $3)
    UNION ALL
    SELECT 2, '', call.operation_id, NULL, TRUE FROM ledger.calls call
    WHERE call.workspace_id = $1 AND call.session_id = $2
        AND (call.result_event_id = $3 OR call.answer_event_id = $3)
    UNION ALL
    SELECT 3, 'answer', NULL, entry.seq, turn.state = 6 FROM ledger.calls call
    JOIN ledger.turns turn USING (workspace_id, session_id, turn_id)
    JOIN ledger.rounds round ON round.workspace_id = $1 AND round.session_id = $2
        AND round.turn_id = call.turn_id AND round.round = call.round
    LEFT JOIN ledger.entries entry ON entry.workspace_id = $1 AND entry.session_id = $2
        AND entry.entry_id = round.answer_entry_id AND entry.kind = 2
    WHERE call.workspace_id = $1 AND call.session_id = $2 AND call.use_event_id = $3
) found
ORDER BY rank LIMIT 1
"""

# The answers of the turn in which an answer's text or thinking was published: turns follow each
# other, and each begins with the mark (3) of its input.
_ANSWERS_AROUND = """
SELECT 'answer' AS entry_type, NULL AS operation_id, entry.seq AS entry_seq,
    turn.state = 6 AS is_over,
    round.turn_id, round.round, round.attempt_epoch, round.attempt_number
FROM ledger.turns turn
JOIN ledger.rounds round USING (workspace_id, session_id, turn_id)
LEFT JOIN ledger.entries entry ON entry.workspace_id = $1 AND entry.session_id = $2
    AND entry.entry_id = round.answer_entry_id AND entry.kind = 2
WHERE turn.workspace_id = $1 AND turn.session_id = $2 AND turn.input_event_id = (
    SELECT began.event_id FROM ledger.log said
    JOIN ledger.log began ON began.workspace_id = $1 AND began.session_id = $2
        AND began.event_type = 'user.message' AND began.kind = 3
        AND began.position <= said.position
    WHERE said.workspace_id = $1 AND said.session_id = $2 AND said.event_id = $3
        AND said.event_type IN ('agent.message', 'agent.thinking')
    ORDER BY began.position DESC LIMIT 1
)
ORDER BY round.round
"""

_ANSWER = """
SELECT round.turn_id, round.round, round.attempt_epoch, round.attempt_number
FROM ledger.entries entry
JOIN ledger.rounds round ON round.workspace_id = $1 AND round.session_id = $2
    AND round.turn_id = entry.turn_id AND round.answer_entry_id = entry.entry_id
WHERE entry.workspace_id = $1 AND entry.session_id = $2 AND entry.seq = $3 AND entry.kind = 2
"""

_OF_EVENTS = """
SELECT log.position, log.event_id, log.sealed, log.commitment, redacted.seal
FROM ledger.log log
LEFT JOIN ledger.redactions redacted ON redacted.workspace_id = $1
    AND redacted.session_id = $2 AND redacted.position = log.position
WHERE log.workspace_id = $1 AND log.session_id = $2 AND log.event_id = ANY($3::text[])
    AND log.kind <> 3
ORDER BY log.position
FOR UPDATE OF log
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
    AND log.position IN (turn.input_position, turn.system_position)
LEFT JOIN ledger.redactions redacted ON redacted.workspace_id = $1
    AND redacted.session_id = $2 AND redacted.position = log.position
WHERE entry.workspace_id = $1 AND entry.session_id = $2 AND entry.seq = $3 AND entry.kind = 1
    AND log.kind <> 3
ORDER BY log.position
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
SELECT session.workspace_id, session.session_id, session.thread_id, fork.cut_seq,
    turn.turn_id IS NULL OR turn.state = 6 AS is_copied
FROM ledger.forks fork
JOIN ledger.sessions session USING (workspace_id, session_id)
LEFT JOIN ledger.turns turn USING (workspace_id, session_id, turn_id)
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
    """What an event is: type and transcript entry of an input or answer, or the operation."""
    return await reader.fetchrow(_LOCATE, *session, event_id)


async def answers_around(reader: Reader, session: Session, event_id: str) -> Sequence[Record]:
    """Answers of the turn that published an event of an answer; none for any other event."""
    return await reader.fetch(_ANSWERS_AROUND, *session, event_id)


async def answer(reader: Reader, session: Session, seq: int) -> Record | None:
    """Turn, round and attempt of the answer in a transcript entry; None for any other entry."""
    return await reader.fetchrow(_ANSWER, *session, seq)


async def of_events(c: Connection, session: Session, event_ids: Sequence[str]) -> list[Record]:
    """The entries of the log of those of the events that there are, locked."""
    return await c.fetch(_OF_EVENTS, *session, event_ids)


async def of_operation(c: Connection, session: Session, operation_id: str) -> list[Record]:
    """Entries of the log that hold answer and result of a call, locked."""
    return await c.fetch(_OF_OPERATION, *session, operation_id)


async def of_entry(c: Connection, session: Session, seq: int) -> list[Record]:
    """The entries of the log that hold the messages of an input, locked."""
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
