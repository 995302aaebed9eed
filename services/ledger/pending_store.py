"""SQL that reads the open actions of a session: the newest round alone, never all of history."""

from foundation.storage import Record
from services.ledger.log_probe import Reader

# Calls of the open round that wait (2). Their use events are the newest of their types, and no type
# has more of them than the round has calls. Turn state 6 is done.
_PENDING = """
WITH front AS (
    SELECT session.thread_id, turn.turn_id, turn.round, turn.round_open
    FROM ledger.sessions session
    JOIN ledger.turns turn
        ON turn.workspace_id = session.workspace_id AND turn.thread_id = session.thread_id
    WHERE session.workspace_id = $1 AND session.session_id = $2 AND turn.state <> 6
    ORDER BY turn.input_position
    LIMIT 1
), called AS (
    SELECT front.thread_id, call.place, call.use_event_id, call.owner, call.name, call.state
    FROM front JOIN ledger.calls call ON call.turn_id = front.turn_id AND call.round = front.round
    WHERE front.round_open AND call.workspace_id = $1
), used AS (
    SELECT entry.event_id, entry.event_type, entry.processed_at
    FROM unnest($3::text[]) AS wanted (event_type)
    CROSS JOIN LATERAL (
        SELECT event_id, event_type, processed_at FROM ledger.log
        WHERE workspace_id = $1 AND session_id = $2 AND event_type = wanted.event_type
        ORDER BY position DESC LIMIT (SELECT count(*) FROM called)
    ) entry
)
SELECT called.thread_id, called.use_event_id, called.owner, called.name, used.event_type,
    used.processed_at
FROM called JOIN used ON used.event_id = called.use_event_id
WHERE called.state = 2
ORDER BY called.place
"""

_USES = ["agent.custom_tool_use", "agent.mcp_tool_use", "agent.tool_use"]


async def pending(reader: Reader, workspace_id: str, session_id: str) -> list[Record]:
    """The open calls with their use events, in use order."""
    return await reader.fetch(_PENDING, workspace_id, session_id, _USES)
