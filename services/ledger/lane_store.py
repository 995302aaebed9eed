"""SQL of lanes: lock and load a session with its thread, write what a decision changed."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

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
from services.ledger.log_writer import LogHead

# Rows of other tables are read by statements of their own, after the lock: they would be those of
# the moment before it.
_LOCK = """
SELECT s.session_id, s.workspace_id, s.thread_id, s.agent_name, s.status, s.input_tokens,
    s.output_tokens, s.cache_read_tokens, s.cache_creation_tokens, s.active_ms, s.running_since,
    s.deleted_at, s.runtime_revision, s.log_position, s.log_digest, s.last_processed_at,
    t.epoch, t.deleted, t.lease_stream, t.ended, t.head_seq, t.head_digest, t.claimable_at
FROM ledger.sessions s JOIN ledger.threads t ON t.thread_id = s.thread_id
WHERE s.workspace_id = $1 AND s.session_id = $2
FOR UPDATE OF s, t
"""

# The thread that waits longest among those that can be claimed now (`$1`).
_LOCK_CLAIMABLE = """
SELECT s.session_id, s.workspace_id, s.thread_id, s.agent_name, s.status, s.input_tokens,
    s.output_tokens, s.cache_read_tokens, s.cache_creation_tokens, s.active_ms, s.running_since,
    s.deleted_at, s.runtime_revision, s.log_position, s.log_digest, s.last_processed_at,
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
    takeovers, not_before, released, traceparent
FROM ledger.turns
WHERE workspace_id = $1 AND thread_id = $2 AND state <> 6
ORDER BY input_position
LIMIT 2
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

_BODIES = """
SELECT position, event_id, sealed FROM ledger.log
WHERE workspace_id = $1 AND session_id = $2 AND position = ANY ($3::bigint[])
"""

_BODY_BYTES = """
SELECT coalesce(sum(octet_length(sealed)), 0) FROM ledger.log
WHERE workspace_id = $1 AND session_id = $2 AND position = ANY ($3::bigint[])
"""

# `$21` renews the lease for `$22` milliseconds, by the database's clock.
_SAVE = """
WITH session AS (
    UPDATE ledger.sessions SET
        status = $3, input_tokens = $4, output_tokens = $5, cache_read_tokens = $6,
        cache_creation_tokens = $7, active_ms = $8, running_since = $9, log_position = $10,
        log_digest = $11, last_processed_at = $12, updated_at = $13
    WHERE workspace_id = $1 AND session_id = $2
), thread AS (
    UPDATE ledger.threads SET
        epoch = $15, lease_stream = $16, ended = $17, head_seq = $18, head_digest = $19,
        claimable_at = $20,
        lease_expires_at = CASE
            WHEN $21 THEN clock_timestamp() + $22 * interval '1 millisecond'
            ELSE lease_expires_at
        END
    WHERE workspace_id = $1 AND thread_id = $14
), round AS (
    INSERT INTO ledger.rounds (workspace_id, session_id, turn_id, round, answer_entry_id,
        answer_digest, attempt_epoch, attempt_number)
    SELECT $1, $2, given.*
    FROM unnest($45::text[], $46::int[], $47::text[], $48::bytea[], $49::bigint[], $50::int[])
        AS given
), entry AS (
    INSERT INTO ledger.entries (workspace_id, session_id, thread_id, turn_id, seq, entry_id, kind,
        digest)
    SELECT $1, $2, $14, given.*
    FROM unnest($51::text[], $52::bigint[], $53::text[], $54::smallint[], $55::bytea[]) AS given
), commit AS (
    INSERT INTO ledger.commits (workspace_id, session_id, turn_id, epoch, round, kind, answer)
    SELECT $1, $2, given.*
    FROM unnest($56::text[], $57::bigint[], $58::int[], $59::smallint[], $60::smallint[]) AS given
), call AS (
    INSERT INTO ledger.calls (workspace_id, session_id, turn_id, round, place, block_index,
        use_event_id, operation_id, owner, policy, name, state, answer, answer_event_id,
        answer_position, answer_digest, answer_marked, result_source, result_event_id,
        result_position, system_event_id, system_position, system_marked)
    SELECT $1, $2, given.*
    FROM unnest($61::text[], $62::int[], $63::int[], $64::int[], $65::text[], $66::text[],
        $67::smallint[], $68::smallint[], $69::bytea[], $70::smallint[], $71::smallint[],
        $72::text[], $73::bigint[], $74::bytea[], $75::bool[], $76::smallint[], $77::text[],
        $78::bigint[], $79::text[], $80::bigint[], $81::bool[]) AS given
    ON CONFLICT (turn_id, round, place) DO UPDATE SET
        state = excluded.state, answer = excluded.answer,
        answer_event_id = excluded.answer_event_id, answer_position = excluded.answer_position,
        answer_digest = excluded.answer_digest, answer_marked = excluded.answer_marked,
        result_source = excluded.result_source, result_event_id = excluded.result_event_id,
        result_position = excluded.result_position, system_event_id = excluded.system_event_id,
        system_position = excluded.system_position, system_marked = excluded.system_marked
)
INSERT INTO ledger.turns (workspace_id, session_id, thread_id, turn_id, input_position,
    input_event_id, state, system_event_id, system_position, marked, interrupted,
    interrupt_event_id, interrupt_position, stop_reason, round, round_open, attempt_round,
    attempt_epoch, attempt_number, span_event_id, span_open, continued_epoch, takeovers,
    not_before, released, traceparent)
SELECT $1, $2, $14, given.*
FROM unnest($23::text[], $24::bigint[], $25::text[], $26::smallint[], $27::text[], $28::bigint[],
    $29::bool[], $30::bool[], $31::text[], $32::bigint[], $33::smallint[], $34::int[],
    $35::bool[], $36::int[], $37::bigint[], $38::int[], $39::text[], $40::bool[], $41::bigint[],
    $42::int[], $43::timestamptz[], $44::bool[], $82::text[]) AS given
ON CONFLICT (turn_id) DO UPDATE SET
    state = excluded.state, system_event_id = excluded.system_event_id,
    system_position = excluded.system_position, marked = excluded.marked,
    interrupted = excluded.interrupted, interrupt_event_id = excluded.interrupt_event_id,
    interrupt_position = excluded.interrupt_position, stop_reason = excluded.stop_reason,
    round = excluded.round, round_open = excluded.round_open,
    attempt_round = excluded.attempt_round, attempt_epoch = excluded.attempt_epoch,
    attempt_number = excluded.attempt_number, span_event_id = excluded.span_event_id,
    span_open = excluded.span_open, continued_epoch = excluded.continued_epoch,
    takeovers = excluded.takeovers, not_before = excluded.not_before, released = excluded.released,
    traceparent = excluded.traceparent
"""

_PUT_OFF = """
UPDATE ledger.threads SET claimable_at = $3
WHERE workspace_id = $1 AND thread_id = $2 AND lease_stream IS NULL AND claimable_at IS NOT NULL
RETURNING thread_id
"""


async def lock(
    connection: Connection, workspace_id: str, session_id: str, now: datetime, calls: bool = True
) -> Lane | None:
    """Lock a session and load its lane; None when the workspace has no such session.

    Without `calls` those of the open round are left out.
    """
    row = await connection.fetchrow(_LOCK, workspace_id, session_id)
    return None if row is None else await _load(connection, row, now, calls)


async def lock_claimable(connection: Connection, now: datetime) -> Lane | None:
    """Lock the lane that waits longest for a claim, passing over locked ones; None for nothing."""
    row = await connection.fetchrow(_LOCK_CLAIMABLE, now)
    return None if row is None else await _load(connection, row, now, True)


async def calls_of(connection: Connection, lane: Lane, operation_ids: Sequence[str]) -> list[Call]:
    """Calls of the front turn, of any round, by operation."""
    turn = lane.front
    if turn is None or not operation_ids:
        return []
    rows = await connection.fetch(
        _CALLS_OF_OPERATIONS, lane.session.workspace_id, turn.turn_id, list(operation_ids)
    )
    return [_call(row) for row in rows]


async def answer_digest(
    connection: Connection, workspace_id: str, turn_id: str, round_: int
) -> bytes | None:
    """Digest of a published round's answer."""
    return await connection.fetchval(_ROUND, workspace_id, turn_id, round_)


async def entry_digests(
    connection: Connection, workspace_id: str, thread_id: str, seqs: Sequence[int]
) -> dict[int, bytes]:
    """Digests of recorded entries by sequence."""
    rows = await connection.fetch(_ENTRY_DIGESTS, workspace_id, thread_id, list(seqs))
    return {row["seq"]: row["digest"] for row in rows}


async def commit_answer(
    connection: Connection, workspace_id: str, turn_id: str, epoch: int, round_: int, kind: int
) -> int | None:
    """The stored answer to a commit."""
    return await connection.fetchval(_COMMIT, workspace_id, turn_id, epoch, round_, kind)


async def sealed_bodies(
    connection: Connection, workspace_id: str, session_id: str, positions: Sequence[int]
) -> list[Record]:
    """Position, event id and sealed body of log entries."""
    return await connection.fetch(_BODIES, workspace_id, session_id, list(positions))


async def body_bytes(
    connection: Connection, workspace_id: str, session_id: str, positions: Sequence[int]
) -> int:
    """Bytes of these log entries' bodies, sealed."""
    found: int = await connection.fetchval(_BODY_BYTES, workspace_id, session_id, list(positions))
    return found


async def put_off(db: Database, lane: Lane, until: datetime) -> None:
    """Do not offer the thread before `until`, unless something happens on it."""
    session = lane.session
    await db.commit_one("ledger.put_off", _PUT_OFF, session.workspace_id, session.thread_id, until)


async def save(
    connection: Connection,
    lane: Lane,
    head: LogHead,
    turns: Sequence[Turn],
    calls: Sequence[Call],
    lease_ms: int,
) -> None:
    """Write the session, the thread, what changed of turns and calls, and what is new, in one
    statement; `head` is the log's new head."""
    session, thread = lane.session, lane.thread
    await connection.execute(
        _SAVE,
        session.workspace_id,
        session.session_id,
        session.status,
        session.input_tokens,
        session.output_tokens,
        session.cache_read_tokens,
        session.cache_creation_tokens,
        session.active_ms,
        session.running_since,
        head.position,
        head.digest,
        head.last_processed_at,
        lane.now,
        session.thread_id,
        thread.epoch,
        thread.lease_stream,
        thread.ended,
        thread.head_seq,
        thread.head_digest,
        thread.claimable_at,
        lane.lease_taken,
        lease_ms,
        *_columns(turns, _TURN_COLUMNS),
        *_columns(lane.new_rounds, _ROUND_COLUMNS),
        *_columns(lane.new_entries, _ENTRY_COLUMNS),
        *_columns(lane.new_commits, _COMMIT_COLUMNS),
        *_columns(calls, _CALL_COLUMNS),
        [turn.traceparent for turn in turns],
    )


_TURN_COLUMNS = (
    "turn_id", "input_position", "input_event_id", "state", "system_event_id", "system_position",
    "marked", "interrupted", "interrupt_event_id", "interrupt_position", "stop_reason", "round",
    "round_open", "attempt_round", "attempt_epoch", "attempt_number", "span_event_id", "span_open",
    "continued_epoch", "takeovers", "not_before", "released",
)  # fmt: skip
_CALL_COLUMNS = (
    "turn_id", "round", "place", "block_index", "use_event_id", "operation_id", "owner", "policy",
    "name_utf8", "state", "answer", "answer_event_id", "answer_position", "answer_digest",
    "answer_marked", "result_source", "result_event_id", "result_position", "system_event_id",
    "system_position", "system_marked",
)  # fmt: skip
_ROUND_COLUMNS = (
    "turn_id", "round", "answer_entry_id", "answer_digest", "attempt_epoch", "attempt_number"
)  # fmt: skip
_ENTRY_COLUMNS = ("turn_id", "seq", "entry_id", "kind", "digest")
_COMMIT_COLUMNS = ("turn_id", "epoch", "round", "kind", "answer")


def _columns(rows: Sequence[object], names: Sequence[str]) -> list[list[Any]]:
    return [[getattr(row, name) for row in rows] for name in names]


async def _load(connection: Connection, row: Record, now: datetime, calls: bool) -> Lane:
    lane = Lane(_session(row), _thread(row), LogHead.of(row), [], now)
    if row["deleted_at"] is not None:
        return lane
    workspace_id = lane.session.workspace_id
    rows = await connection.fetch(_TURNS, workspace_id, lane.session.thread_id)
    lane.turns = [_turn(found) for found in rows]
    front = lane.front
    if calls and front is not None and front.round_open:
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
        active_ms=row["active_ms"],
        running_since=row["running_since"],
        deleted_at=row["deleted_at"],
        runtime_revision=row["runtime_revision"],
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
