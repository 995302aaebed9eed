"""SQL of exports and imports that is about more than rows as they are."""

from counterfoil.types.v1.export_pb2 import ExportCut, OpenTurn

from foundation.storage import Connection, Record
from services.ledger.log_probe import Reader

_CUT = """
SELECT s.log_position, s.log_digest, t.thread_id, t.epoch, t.head_seq, t.head_digest
FROM ledger.sessions s JOIN ledger.threads t ON t.thread_id = s.thread_id
WHERE s.workspace_id = $1 AND s.session_id = $2 AND s.deleted_at IS NULL
"""

# Done is 6.
_OPEN_TURNS = """
SELECT turn_id, round, input_position FROM ledger.turns
WHERE workspace_id = $1 AND session_id = $2 AND state <> 6
ORDER BY input_position
"""

# Calls that wait for a client (2).
_WAITING = """
SELECT call.operation_id FROM ledger.calls call
JOIN ledger.turns turn ON turn.turn_id = call.turn_id AND turn.round = call.round
WHERE call.workspace_id = $1 AND call.session_id = $2 AND turn.state <> 6 AND call.state = 2
ORDER BY call.place
"""

# Session ids are of all workspaces.
_LOCK = """
SELECT pg_advisory_xact_lock(hashtextextended($1, 4)),
    EXISTS (SELECT FROM ledger.sessions WHERE session_id = $1) AS is_here
"""

# The time between export and import was nobody's.
_RESUME = """
UPDATE ledger.sessions SET running_since = clock_timestamp()
WHERE workspace_id = $1 AND session_id = $2 AND running_since IS NOT NULL
"""


async def moment(reader: Reader, workspace_id: str, session_id: str) -> Record | None:
    """The heads of a session that is not deleted."""
    return await reader.fetchrow(_CUT, workspace_id, session_id)


async def cut(reader: Reader, workspace_id: str, session_id: str, found: Record) -> ExportCut:
    """What others have to leave out at that moment."""
    turns = await reader.fetch(_OPEN_TURNS, workspace_id, session_id)
    waiting = await reader.fetch(_WAITING, workspace_id, session_id)
    made = ExportCut(
        thread_id=found["thread_id"],
        epoch=found["epoch"],
        open_turns=[OpenTurn(turn_id=row["turn_id"], round=row["round"]) for row in turns],
        waiting_operation_ids=[row["operation_id"] for row in waiting],
    )
    made.head.seq, made.head.digest = found["head_seq"], found["head_digest"]
    return made


async def copies_history(reader: Reader, workspace_id: str, session_id: str) -> bool:
    """Whether the session is a fork whose history is not there yet."""
    turns = await reader.fetch(_OPEN_TURNS, workspace_id, session_id)
    return any(row["input_position"] == 0 for row in turns)


async def lock_absent(connection: Connection, session_id: str) -> bool:
    """Whether nobody has the session; nobody else imports it until the transaction ends."""
    row = await connection.fetchrow(_LOCK, session_id)
    return row is not None and not row["is_here"]


async def resume(connection: Connection, workspace_id: str, session_id: str) -> None:
    """Let a running session run from now on."""
    await connection.execute(_RESUME, workspace_id, session_id)
