"""SQL of sessions: create, read, delete, erase."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from counterfoil.ledger.v1 import session_pb2
from counterfoil.types.v1 import reference_pb2, runtime_pb2

from foundation.errors import not_found
from foundation.storage import Connection, Database, Record, SealRing
from services.ledger.lane import Ended, Lane, Session, Thread
from services.ledger.log_probe import Reader, SessionHead
from services.ledger.log_row import LogHead

if TYPE_CHECKING:
    from services.ledger.lanes import Change

_INSERT = """
WITH session AS (
    INSERT INTO ledger.sessions (workspace_id, session_id, thread_id, environment_id, agent_id,
        agent_name, pinned, runtime, status, input_tokens, output_tokens, cache_read_tokens,
        cache_creation_tokens, active_ms, log_position, log_digest, created_at, updated_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, 0, 0, 0, 0, 0, '', $10, $10)
)
INSERT INTO ledger.threads (workspace_id, session_id, thread_id, epoch, deleted, ended, head_seq,
    head_digest, created_at)
VALUES ($1, $2, $3, 0, false, $11, 0, '', $10)
"""

_GET = """
SELECT session_id, thread_id, environment_id, pinned, status, input_tokens, output_tokens,
    cache_read_tokens, cache_creation_tokens, active_ms, running_since, created_at, updated_at,
    archived_at
FROM ledger.sessions
WHERE workspace_id = $1 AND session_id = $2 AND deleted_at IS NULL
"""

_RUNTIME = """
SELECT runtime FROM ledger.sessions WHERE workspace_id = $1 AND session_id = $2
"""

_HEAD = """
SELECT log_position, log_digest, last_processed_at, deleted_at FROM ledger.sessions
WHERE workspace_id = $1 AND session_id = $2
"""

# Open calls (2) become closed (4).
_BURY = """
WITH session AS (
    UPDATE ledger.sessions SET deleted_at = $3 WHERE workspace_id = $1 AND session_id = $2
), call AS (
    UPDATE ledger.calls SET state = 4 WHERE workspace_id = $1 AND session_id = $2 AND state = 2
)
UPDATE ledger.threads SET deleted = true WHERE workspace_id = $1 AND session_id = $2
"""

# Deleted sessions that nobody erases, or who said so did not finish in `$1` seconds; at most `$2`.
_OFFER = """
UPDATE ledger.sessions SET erasure_offered_at = clock_timestamp()
WHERE session_id IN (
    SELECT session_id FROM ledger.sessions
    WHERE deleted_at IS NOT NULL AND erased_at IS NULL AND (erasure_offered_at IS NULL
        OR erasure_offered_at < clock_timestamp() - $1 * interval '1 second')
    ORDER BY deleted_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
RETURNING workspace_id, session_id, thread_id
"""

_ERASE = """
WITH dead AS (
    UPDATE ledger.sessions SET pinned = NULL, runtime = NULL, agent_name = '',
        erased_at = clock_timestamp()
    WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND deleted_at IS NOT NULL
        AND erased_at IS NULL
    RETURNING session_id, thread_id
), turn AS (
    DELETE FROM ledger.turns USING dead WHERE turns.thread_id = dead.thread_id
), call AS (
    DELETE FROM ledger.calls USING dead WHERE calls.session_id = dead.session_id
), round AS (
    DELETE FROM ledger.rounds USING dead WHERE rounds.session_id = dead.session_id
), commit AS (
    DELETE FROM ledger.commits USING dead WHERE commits.session_id = dead.session_id
)
SELECT session_id FROM dead
"""

_TURN_HOME = """
SELECT workspace_id, session_id, thread_id FROM ledger.turns WHERE turn_id = $1
"""

_SESSION_HOME = """
SELECT workspace_id, session_id, thread_id FROM ledger.sessions WHERE session_id = $1
"""


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to insert; `admit` decides what comes with it, under its lock."""

    workspace_id: str
    thread_id: str
    session: session_pb2.Session
    runtime: runtime_pb2.SessionRuntime
    created_at: datetime
    admit: "Callable[[Change], None]"


async def insert(connection: Connection, ring: SealRing, new: NewSession) -> Lane:
    """Insert a session that waits, with its primary thread; its lane."""
    id_ = new.session.id
    await connection.execute(
        _INSERT,
        new.workspace_id,
        id_,
        new.thread_id,
        new.session.environment_id,
        new.session.agent.id,
        new.session.agent.name.encode(),
        ring.seal(_pinned(new.session), *_identity("pinned", new.workspace_id, id_)),
        ring.seal(new.runtime.SerializeToString(), *_identity("runtime", new.workspace_id, id_)),
        session_pb2.SESSION_STATUS_IDLE,
        new.created_at,
        Ended.COMMITTED,
    )
    session = Session(
        workspace_id=new.workspace_id,
        session_id=id_,
        thread_id=new.thread_id,
        agent_name=new.session.agent.name,
        status=session_pb2.SESSION_STATUS_IDLE,
        input_tokens=0,
        output_tokens=0,
        cache_read_tokens=0,
        cache_creation_tokens=0,
        active_ms=0,
        running_since=None,
        deleted_at=None,
    )
    thread = Thread(
        epoch=0,
        deleted=False,
        lease_stream=None,
        ended=Ended.COMMITTED,
        head_seq=0,
        head_digest=b"",
        claimable_at=None,
    )
    return Lane(session, thread, LogHead(), [], new.created_at)


async def get(db: Database, workspace_id: str, session_id: str) -> Record:
    """The session's row; raises NOT_FOUND, for a deleted one too."""
    row = await db.fetchrow(_GET, workspace_id, session_id)
    if row is None:
        raise not_found("session", session_id)
    return row


def pinned(ring: SealRing, workspace_id: str, row: Record) -> session_pb2.Session:
    """What clients read of a session that never changes by itself: agent, title, metadata."""
    identity = _identity("pinned", workspace_id, row["session_id"])
    return session_pb2.Session.FromString(ring.open(row["pinned"], *identity))


async def runtime(
    connection: Connection, ring: SealRing, workspace_id: str, session_id: str
) -> runtime_pb2.SessionRuntime:
    """What the session's turns run with."""
    sealed = await connection.fetchval(_RUNTIME, workspace_id, session_id)
    opened = ring.open(sealed, *_identity("runtime", workspace_id, session_id))
    return runtime_pb2.SessionRuntime.FromString(opened)


async def probe(reader: Reader, workspace_id: str, session_id: str) -> SessionHead | None:
    """The head of the session's log."""
    row = await reader.fetchrow(_HEAD, workspace_id, session_id)
    if row is None:
        return None
    return SessionHead(LogHead.of(row), deleted=row["deleted_at"] is not None)


async def bury(connection: Connection, lane: Lane) -> None:
    """Mark the session as deleted and close its actions, with what `notices.bury` decided."""
    session = lane.session
    await connection.execute(_BURY, session.workspace_id, session.session_id, lane.now)


async def offer_erasures(db: Database, again_s: float, limit: int) -> list[reference_pb2.ThreadRef]:
    """Deleted threads to hand to a runner now; not finished, they are offered again later."""
    rows = await db.commit_one("ledger.offer_erasure", _OFFER, again_s, limit)
    return [_thread_ref(row) for row in rows]


async def erase(connection: Connection, thread: reference_pb2.ThreadRef) -> bool:
    """Take away what the ledger keeps of a deleted session beside the log; False for no such."""
    key = thread.workspace_id, thread.session_id, thread.thread_id
    return await connection.fetchval(_ERASE, *key) is not None


async def home_of_turn(db: Database, turn_id: str) -> reference_pb2.ThreadRef:
    """The thread of a turn, in any workspace: for operators. Raises NOT_FOUND."""
    row = await db.fetchrow(_TURN_HOME, turn_id)
    if row is None:
        raise not_found("turn", turn_id)
    return _thread_ref(row)


async def home_of_session(db: Database, session_id: str) -> reference_pb2.ThreadRef:
    """The primary thread of a session, in any workspace: for operators. Raises NOT_FOUND."""
    row = await db.fetchrow(_SESSION_HOME, session_id)
    if row is None:
        raise not_found("session", session_id)
    return _thread_ref(row)


def _pinned(session: session_pb2.Session) -> bytes:
    kept = session_pb2.Session(agent=session.agent, metadata=session.metadata)
    if session.HasField("title"):
        kept.title = session.title
    return kept.SerializeToString()


def _identity(column: str, workspace_id: str, session_id: str) -> tuple[str, str, str]:
    return f"ledger.sessions.{column}", workspace_id, session_id


def _thread_ref(row: Record) -> reference_pb2.ThreadRef:
    return reference_pb2.ThreadRef(
        workspace_id=row["workspace_id"],
        session_id=row["session_id"],
        thread_id=row["thread_id"],
    )
