"""SQL of lanes: lock and load a session with its thread, read what a decision asks for."""

from collections.abc import Sequence
from datetime import datetime

from counterfoil.ledger.v1 import session_events_pb2, session_pb2, turn_pb2
from counterfoil.types.v1 import runtime_pb2

from foundation.storage import Connection, Database, Record
from services.ledger.lane import (
    Answer,
    Call,
    Ended,
    Lane,
    Session,
    Source,
    Thread,
    Turn,
)
from services.ledger.log_probe import Reader
from services.ledger.log_row import LogHead

# Rows of other tables are read by statements of their own, after the lock: they would be those of
# the moment before it.
_LOCK = """
SELECT s.session_id, s.workspace_id, s.thread_id, s.agent_name, s.status, s.input_tokens,
    s.output_tokens, s.cache_read_tokens, s.cache_creation_tokens, s.cache_creation_1h_tokens,
    s.web_searches, s.web_fetches, s.active_ms, s.running_since,
    s.deleted_at, s.revision, s.runtime_revision, s.log_position, s.log_digest, s.last_processed_at,
    t.epoch, t.deleted, t.lease_stream, t.ended, t.head_seq, t.head_digest, t.claimable_at
FROM ledger.sessions s JOIN ledger.threads t ON t.thread_id = s.thread_id
WHERE s.workspace_id = $1 AND s.session_id = $2
FOR UPDATE OF s, t
"""

# The thread that waits longest among those that can be claimed now (`$1`).
_LOCK_CLAIMABLE = """
SELECT s.session_id, s.workspace_id, s.thread_id, s.agent_name, s.status, s.input_tokens,
    s.output_tokens, s.cache_read_tokens, s.cache_creation_tokens, s.cache_creation_1h_tokens,
    s.web_searches, s.web_fetches, s.active_ms, s.running_since,
    s.deleted_at, s.revision, s.runtime_revision, s.log_position, s.log_digest, s.last_processed_at,
    t.epoch, t.deleted, t.lease_stream, t.ended, t.head_seq, t.head_digest, t.claimable_at
FROM ledger.threads t JOIN ledger.sessions s ON s.session_id = t.session_id
WHERE t.claimable_at <= $1 AND t.claimable_at IS NOT NULL AND t.lease_stream IS NULL
    AND NOT t.deleted
ORDER BY t.claimable_at
LIMIT 1
FOR UPDATE OF s, t SKIP LOCKED
"""

_TURNS = """
SELECT turn_id, input_position, input_event_id, state, system_event_id, system_position, marked,
    interrupted, interrupt_event_id, interrupt_position, stop_reason, round, round_open,
    attempt_round, attempt_epoch, attempt_number, span_event_id, span_open, continued_epoch,
    takeovers, not_before, released, traceparent, retries
FROM ledger.turns
WHERE workspace_id = $1 AND thread_id = $2 AND state <> 6
ORDER BY input_position
LIMIT 3
"""

_CALLS = """
SELECT turn_id, round, place, block_index, use_event_id, operation_id, owner, policy, name, state,
    answer, answer_event_id, answer_position, answer_digest, answer_marked, result_source,
    result_event_id, result_position, system_event_id, system_position, system_marked
FROM ledger.calls
WHERE workspace_id = $1 AND turn_id = $2 AND round = $3
ORDER BY place
"""

_CALLS_OF_OPERATIONS = """
SELECT turn_id, round, place, block_index, use_event_id, operation_id, owner, policy, name, state,
    answer, answer_event_id, answer_position, answer_digest, answer_marked, result_source,
    result_event_id, result_position, system_event_id, system_position, system_marked
FROM ledger.calls
WHERE workspace_id = $1 AND turn_id = $2 AND operation_id = ANY ($3::text[])
"""

_ROUND = """
SELECT answer_digest FROM ledger.rounds
WHERE workspace_id = $1 AND turn_id = $2 AND round = $3
"""

_ENTRY_DIGESTS = """
SELECT seq, digest FROM ledger.entries
WHERE workspace_id = $1 AND thread_id = $2 AND seq = ANY ($3::bigint[])
"""

_COMMIT = """
SELECT answer FROM ledger.commits
WHERE workspace_id = $1 AND turn_id = $2 AND epoch = $3 AND round = $4 AND kind = $5
"""

_IS_IN_LOG = """
SELECT EXISTS (
    SELECT FROM ledger.log
    WHERE workspace_id = $1 AND session_id = $2 AND event_type = $3 AND event_id = $4
)
"""

_BODIES = """
SELECT position, event_id, sealed FROM ledger.log
WHERE workspace_id = $1 AND session_id = $2 AND position = ANY ($3::bigint[])
"""

_BODY_BYTES = """
SELECT coalesce(sum(octet_length(sealed)), 0) FROM ledger.log
WHERE workspace_id = $1 AND session_id = $2 AND position = ANY ($3::bigint[])
"""

_PUT_OFF = """
UPDATE ledger.threads SET claimable_at = $3
WHERE workspace_id = $1 AND thread_id = $2 AND lease_stream IS NULL AND claimable_at IS NOT NULL
RETURNING thread_id
"""


async def lock(
    connection: Connection, workspace_id: str, session_id: str, now: datetime
) -> Lane | None:
    """Lock a session and load its lane; None when the workspace has no such session."""
    row = await connection.fetchrow(_LOCK, workspace_id, session_id)
    return None if row is None else await _load(connection, row, now)


async def lock_claimable(connection: Connection, now: datetime) -> Lane | None:
    """Lock the lane that waits longest for a claim, passing over locked ones; None for nothing."""
    row = await connection.fetchrow(_LOCK_CLAIMABLE, now)
    return None if row is None else await _load(connection, row, now)


async def calls_of(reader: Reader, lane: Lane, operation_ids: Sequence[str]) -> list[Call]:
    """Calls of the front turn, of any round, by operation."""
    turn = lane.front
    if turn is None or not operation_ids:
        return []
    rows = await reader.fetch(
        _CALLS_OF_OPERATIONS, lane.session.workspace_id, turn.turn_id, list(operation_ids)
    )
    return [_call(row) for row in rows]


async def answer_digest(
    reader: Reader, workspace_id: str, turn_id: str, round_: int
) -> bytes | None:
    """Digest of a published round's answer."""
    return await reader.fetchval(_ROUND, workspace_id, turn_id, round_)


async def entry_digests(
    reader: Reader, workspace_id: str, thread_id: str, seqs: Sequence[int]
) -> dict[int, bytes]:
    """Digests of recorded entries by sequence."""
    rows = await reader.fetch(_ENTRY_DIGESTS, workspace_id, thread_id, list(seqs))
    return {row["seq"]: row["digest"] for row in rows}


async def commit_answer(
    reader: Reader, workspace_id: str, turn_id: str, epoch: int, round_: int, kind: int
) -> int | None:
    """The stored answer to a commit."""
    return await reader.fetchval(_COMMIT, workspace_id, turn_id, epoch, round_, kind)


async def is_in_log(
    reader: Reader, workspace_id: str, session_id: str, event_type: str, event_id: str
) -> bool:
    """Whether a session's log has an event of a type with this id."""
    found: bool = await reader.fetchval(_IS_IN_LOG, workspace_id, session_id, event_type, event_id)
    return found


async def sealed_bodies(
    reader: Reader, workspace_id: str, session_id: str, positions: Sequence[int]
) -> list[Record]:
    """Position, event id and sealed body of log entries."""
    return await reader.fetch(_BODIES, workspace_id, session_id, list(positions))


async def body_bytes(
    reader: Reader, workspace_id: str, session_id: str, positions: Sequence[int]
) -> int:
    """Bytes of these log entries' bodies, sealed."""
    found: int = await reader.fetchval(_BODY_BYTES, workspace_id, session_id, list(positions))
    return found


async def put_off(db: Database, lane: Lane, until: datetime) -> None:
    """Do not offer the thread before `until`, unless something happens on it."""
    session = lane.session
    await db.commit_one("ledger.put_off", _PUT_OFF, session.workspace_id, session.thread_id, until)


async def _load(connection: Connection, row: Record, now: datetime) -> Lane:
    lane = Lane(_session(row), _thread(row), LogHead.of(row), [], now)
    if row["deleted_at"] is not None:
        return lane
    workspace_id = lane.session.workspace_id
    rows = await connection.fetch(_TURNS, workspace_id, lane.session.thread_id)
    lane.turns = [_turn(found) for found in rows[:2]]
    lane.more = len(rows) > 2
    front = lane.front
    if front is not None and front.round_open:
        rows = await connection.fetch(_CALLS, workspace_id, front.turn_id, front.round)
        lane.calls = [_call(found) for found in rows]
    return lane


def _session(row: Record) -> Session:
    return Session(
        workspace_id=row["workspace_id"],
        session_id=row["session_id"],
        thread_id=row["thread_id"],
        agent_name=row["agent_name"].decode(),
        status=session_pb2.SessionStatus.ValueType(row["status"]),
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        cache_read_tokens=row["cache_read_tokens"],
        cache_creation_tokens=row["cache_creation_tokens"],
        cache_creation_1h_tokens=row["cache_creation_1h_tokens"],
        web_searches=row["web_searches"],
        web_fetches=row["web_fetches"],
        active_ms=row["active_ms"],
        running_since=row["running_since"],
        deleted_at=row["deleted_at"],
        runtime_revision=row["runtime_revision"],
        revision=row["revision"],
    )


def _thread(row: Record) -> Thread:
    return Thread(
        epoch=row["epoch"],
        deleted=row["deleted"],
        lease_stream=row["lease_stream"],
        ended=Ended(row["ended"]),
        head_seq=row["head_seq"],
        head_digest=row["head_digest"],
        claimable_at=row["claimable_at"],
    )


def _turn(row: Record) -> Turn:
    turn = Turn(**row)
    turn.state = turn_pb2.TurnState.ValueType(turn.state)
    turn.stop_reason = session_events_pb2.StopReasonType.ValueType(turn.stop_reason)
    return turn


def _call(row: Record) -> Call:
    call = Call(**{**row, "name": row["name"].decode()})
    call.owner = runtime_pb2.ToolOwner.ValueType(call.owner)
    call.policy = runtime_pb2.ToolPolicy.ValueType(call.policy)
    call.state = turn_pb2.CallState.ValueType(call.state)
    call.answer, call.result_source = Answer(call.answer), Source(call.result_source)
    return call
