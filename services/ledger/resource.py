"""Sessions and threads as clients read them."""

from datetime import UTC, datetime

from counterfoil.ledger.v1 import session_pb2
from counterfoil.registry.v1 import agent_pb2
from google.protobuf.timestamp_pb2 import Timestamp

from foundation.storage import Record
from services.ledger import notices
from services.ledger.lane import Session

SessionStatus = session_pb2.SessionStatus


def born() -> datetime:
    """When a session that is made now was created. Clients see milliseconds: what they read of a
    session finds it again in a filter."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def session(row: Record, pinned: session_pb2.Session, now: datetime) -> session_pb2.Session:
    """A session from its row and what it pinned; times run until `now`."""
    counted = _counted(row, now)
    until = row["archived_at"] or now
    found = session_pb2.Session(
        id=row["session_id"],
        agent=pinned.agent,
        archived_at=_timestamp(row["archived_at"]),
        created_at=_timestamp(row["created_at"]),
        environment_id=row["environment_id"],
        metadata=pinned.metadata,
        stats=session_pb2.SessionStats(
            active_seconds=counted.active_ms / 1000,
            duration_seconds=_seconds(row["created_at"], until),
        ),
        status=SessionStatus.ValueType(row["status"]),
        updated_at=_timestamp(row["updated_at"]),
        usage=notices.usage(counted),
    )
    if pinned.HasField("title"):
        found.title = pinned.title
    if pinned.HasField("forked_from"):
        found.forked_from.CopyFrom(pinned.forked_from)
    return found


def thread(row: Record, pinned: session_pb2.Session, now: datetime) -> session_pb2.Thread:
    """The primary thread of a session, from the session's row."""
    counted = _counted(row, now)
    return session_pb2.Thread(
        id=row["thread_id"],
        agent=pinned.agent,
        archived_at=_timestamp(row["archived_at"]),
        created_at=_timestamp(row["created_at"]),
        session_id=row["session_id"],
        stats=session_pb2.ThreadStats(
            active_seconds=counted.active_ms / 1000,
            duration_seconds=_seconds(row["created_at"], row["archived_at"] or now),
        ),
        status=SessionStatus.ValueType(row["status"]),
        updated_at=_timestamp(row["updated_at"]),
        usage=notices.usage(counted),
    )


def agent(definition: agent_pb2.Agent) -> agent_pb2.SessionAgent:
    """The copy of an agent version that a session pins."""
    found = agent_pb2.SessionAgent(
        id=definition.id,
        execution_identity=definition.execution_identity,
        mcp_servers=definition.mcp_servers,
        model=definition.model,
        name=definition.name,
        skills=definition.skills,
        tools=definition.tools,
        version=definition.version,
    )
    if definition.HasField("description"):
        found.description = definition.description
    if definition.HasField("system"):
        found.system = definition.system
    return found


def _counted(row: Record, now: datetime) -> Session:
    """The session's counters with the running span so far."""
    active_ms: int = row["active_ms"]
    if row["running_since"] is not None:
        active_ms += max(0, int((now - row["running_since"]).total_seconds() * 1000))
    return Session(
        workspace_id="",
        session_id=row["session_id"],
        thread_id=row["thread_id"],
        agent_name="",
        status=SessionStatus.ValueType(row["status"]),
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        cache_read_tokens=row["cache_read_tokens"],
        cache_creation_tokens=row["cache_creation_tokens"],
        cache_creation_1h_tokens=row["cache_creation_1h_tokens"],
        web_searches=row["web_searches"],
        web_fetches=row["web_fetches"],
        active_ms=active_ms,
        running_since=None,
        deleted_at=None,
    )


def _timestamp(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    found = Timestamp()
    found.FromDatetime(moment)
    return found


def _seconds(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())
