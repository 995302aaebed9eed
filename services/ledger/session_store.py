"""SQL of sessions: create, read, change, archive, delete, erase."""

from dataclasses import dataclass
from datetime import datetime

from counterfoil.ledger.v1 import session_pb2
from counterfoil.types.v1 import reference_pb2, runtime_pb2

from foundation.errors import not_found
from foundation.storage import Connection, Database, Record, SealRing
from services.ledger.lane import Ended, Lane, Session, Thread
from services.ledger.log_probe import Reader, SessionHead
from services.ledger.log_row import LogHead

_INSERT = """
WITH session AS (
    INSERT INTO ledger.sessions (workspace_id, session_id, thread_id, environment_id, agent_id,
        agent_name, pinned, runtime, status, input_tokens, output_tokens, cache_read_tokens,
        cache_creation_tokens, active_ms, log_position, log_digest, created_at, updated_at,
        agent_version)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, 0, 0, 0, 0, 0, '', $10, $10, $12)
    RETURNING session_id, thread_id, environment_id, status, input_tokens, output_tokens,
        cache_read_tokens, cache_creation_tokens, cache_creation_1h_tokens, web_searches,
        web_fetches, active_ms, running_since, created_at, updated_at, archived_at
), thread AS (
    INSERT INTO ledger.threads (workspace_id, session_id, thread_id, epoch, deleted, ended,
        head_seq, head_digest, created_at)
    VALUES ($1, $2, $3, 0, false, $11, 0, '', $10)
)
SELECT session.*, $13::integer AS call FROM session
"""

_GET = """
SELECT session_id, thread_id, environment_id, pinned, status, input_tokens, output_tokens,
    cache_read_tokens, cache_creation_tokens, cache_creation_1h_tokens, web_searches, web_fetches,
    active_ms, running_since, created_at, updated_at, archived_at, runtime_revision
FROM ledger.sessions
WHERE workspace_id = $1 AND session_id = $2 AND deleted_at IS NULL
"""

_RUNTIMES = """
SELECT runtime, runtime_before, runtime_before_through FROM ledger.sessions
WHERE workspace_id = $1 AND session_id = $2
"""

_HEAD = """
SELECT log_position, log_digest, last_processed_at, deleted_at, status FROM ledger.sessions
WHERE workspace_id = $1 AND session_id = $2
"""

_UPDATE = """
UPDATE ledger.sessions SET pinned = $3 WHERE workspace_id = $1 AND session_id = $2
"""

_REPLACE_RUNTIME = """
UPDATE ledger.sessions SET runtime = $3, runtime_before = $4, runtime_before_through = $5,
    runtime_revision = runtime_revision + 1
WHERE workspace_id = $1 AND session_id = $2
"""

# Turns that were queued (1) behind the front one are over (6): they never run.
_ARCHIVE = """
WITH dropped AS (
    UPDATE ledger.turns SET state = 6 WHERE workspace_id = $1 AND thread_id = $3 AND state = 1
)
UPDATE ledger.sessions SET archived_at = $4 WHERE workspace_id = $1 AND session_id = $2
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
# One that a fork is still to be copied from is kept until that is done (6), or deleted too.
_OFFER = """
UPDATE ledger.sessions SET erasure_offered_at = clock_timestamp()
WHERE session_id IN (
    SELECT session_id FROM ledger.sessions dead
    WHERE deleted_at IS NOT NULL AND erased_at IS NULL AND (erasure_offered_at IS NULL
        OR erasure_offered_at < clock_timestamp() - $1 * interval '1 second')
        AND NOT EXISTS (
            SELECT FROM ledger.forks fork
            JOIN ledger.turns turn ON turn.turn_id = fork.turn_id AND turn.state <> 6
            JOIN ledger.sessions reader ON reader.session_id = fork.session_id
            WHERE fork.workspace_id = dead.workspace_id
                AND fork.source_session_id = dead.session_id AND reader.deleted_at IS NULL
        )
    ORDER BY deleted_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
RETURNING workspace_id, session_id, thread_id
"""

_ERASE = """
WITH dead AS (
    UPDATE ledger.sessions SET pinned = NULL, runtime = NULL, runtime_before = NULL,
        agent_name = '', erased_at = clock_timestamp()
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
), fork AS (
    DELETE FROM ledger.forks USING dead WHERE forks.session_id = dead.session_id
), replay AS (
    DELETE FROM ledger.replays USING dead
    WHERE replays.workspace_id = $1 AND replays.resource_id = dead.session_id
)
SELECT session_id FROM dead
"""

_TURN_HOME = """
SELECT workspace_id, session_id, thread_id FROM ledger.turns WHERE turn_id = $1
"""

_SESSION_HOME = """
SELECT workspace_id, session_id, thread_id FROM ledger.sessions
WHERE session_id = $1 AND ($2 = '' OR workspace_id = $2 AND deleted_at IS NULL)
"""


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to insert."""

    workspace_id: str
    thread_id: str
    session: session_pb2.Session
    runtime: runtime_pb2.SessionRuntime
    created_at: datetime


def insertion(ring: SealRing, new: NewSession) -> tuple[str, tuple[object, ...]]:
    """The statement that inserts a session that waits, with its primary thread, and returns its
    row; and the statement's parameters but the last, which that row holds as `call`."""
    id_ = new.session.id
    return _INSERT, (
        new.workspace_id,
        id_,
        new.thread_id,
        new.session.environment_id,
        new.session.agent.id,
        new.session.agent.name.encode(),
        ring.seal(_pinned(new.session), *identity("pinned", new.workspace_id, id_)),
        ring.seal(new.runtime.SerializeToString(), *identity("runtime", new.workspace_id, id_)),
        session_pb2.SESSION_STATUS_IDLE,
        new.created_at,
        Ended.COMMITTED,
        new.session.agent.version,
    )


def lane_of(new: NewSession) -> Lane:
    """The lane of a session that was just inserted."""
    id_ = new.session.id
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


async def get(reader: Reader, workspace_id: str, session_id: str) -> Record:
    """The session's row; raises NOT_FOUND, for a deleted one too."""
    row = await reader.fetchrow(_GET, workspace_id, session_id)
    if row is None:
        raise not_found("session", session_id)
    return row


def pinned(ring: SealRing, workspace_id: str, row: Record) -> session_pb2.Session:
    """What clients read of a session that at most an update changes: agent, title, metadata, and
    where it was forked."""
    bound = identity("pinned", workspace_id, row["session_id"])
    return session_pb2.Session.FromString(ring.open(row["pinned"], *bound))


async def runtimes(
    reader: Reader, ring: SealRing, workspace_id: str, session_id: str
) -> tuple[runtime_pb2.SessionRuntime, runtime_pb2.SessionRuntime | None, int]:
    """What the session's turns run with, what those with an input up to a position run with, and
    that position."""
    row = await reader.fetchrow(_RUNTIMES, workspace_id, session_id)
    assert row is not None

    def open_(column: str) -> runtime_pb2.SessionRuntime:
        opened = ring.open(row[column], *identity(column, workspace_id, session_id))
        return runtime_pb2.SessionRuntime.FromString(opened)

    before = None if row["runtime_before"] is None else open_("runtime_before")
    return open_("runtime"), before, row["runtime_before_through"]


async def update(
    connection: Connection, ring: SealRing, lane: Lane, kept: session_pb2.Session
) -> None:
    """Replace what clients read of a locked session."""
    key = lane.session.workspace_id, lane.session.session_id
    await connection.execute(_UPDATE, *key, ring.seal(_pinned(kept), *identity("pinned", *key)))


async def replace_runtime(
    connection: Connection, ring: SealRing, lane: Lane, new: runtime_pb2.SessionRuntime
) -> None:
    """Turns of a locked session that have not begun run with `new`; one that has keeps its own."""
    key = lane.session.workspace_id, lane.session.session_id
    front, sealed, through = lane.front, None, 0
    if front is not None and front.marked:
        current, before, before_through = await runtimes(connection, ring, *key)
        through = front.input_position
        kept = before if before is not None and through <= before_through else current
        sealed = ring.seal(kept.SerializeToString(), *identity("runtime_before", *key))
    await connection.execute(
        _REPLACE_RUNTIME,
        *key,
        ring.seal(new.SerializeToString(), *identity("runtime", *key)),
        sealed,
        through,
    )


async def archive(connection: Connection, lane: Lane) -> None:
    """Mark a locked session as archived, with what `archive.archive` decided."""
    session = lane.session
    await connection.execute(
        _ARCHIVE, session.workspace_id, session.session_id, session.thread_id, lane.now
    )


async def probe(reader: Reader, workspace_id: str, session_id: str) -> SessionHead | None:
    """The head of the session's log."""
    row = await reader.fetchrow(_HEAD, workspace_id, session_id)
    if row is None:
        return None
    return SessionHead(
        LogHead.of(row),
        deleted=row["deleted_at"] is not None,
        terminated=row["status"] == session_pb2.SESSION_STATUS_TERMINATED,
    )


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


async def home_of_session(
    db: Database, session_id: str, workspace_id: str = ""
) -> reference_pb2.ThreadRef:
    """The primary thread of a session of this workspace that is not deleted; without a workspace
    of any, for operators. Raises NOT_FOUND."""
    row = await db.fetchrow(_SESSION_HOME, session_id, workspace_id)
    if row is None:
        raise not_found("session", session_id)
    return _thread_ref(row)


def _pinned(session: session_pb2.Session) -> bytes:
    kept = session_pb2.Session(agent=session.agent, metadata=session.metadata)
    if session.HasField("title"):
        kept.title = session.title
    if session.HasField("forked_from"):
        kept.forked_from.CopyFrom(session.forked_from)
    return kept.SerializeToString()


def identity(column: str, workspace_id: str, session_id: str) -> tuple[str, str, str]:
    """What a sealed column of a session is bound to."""
    return f"ledger.sessions.{column}", workspace_id, session_id


def _thread_ref(row: Record) -> reference_pb2.ThreadRef:
    return reference_pb2.ThreadRef(
        workspace_id=row["workspace_id"],
        session_id=row["session_id"],
        thread_id=row["thread_id"],
    )
