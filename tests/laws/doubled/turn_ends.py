"""Where in the public log each turn was done, noted by PostgreSQL: a turn that goes over into
waiting input publishes nothing when it ends, so the log alone does not say it.

One statement may store several changes of a session; then only its last position is known. Here it
never does: the machine waits until all is quiet before it lets the next call or message arrive.
"""

from counterfoil.ledger.v1 import turn_pb2

from foundation.storage import Connection

_WATCH = f"""
CREATE SCHEMA watched;
CREATE TABLE watched.ends (session_id text NOT NULL, position bigint NOT NULL);
CREATE FUNCTION watched.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO watched.ends
    SELECT session_id, log_position FROM ledger.sessions WHERE session_id = NEW.session_id;
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER INSERT ON ledger.commits
FOR EACH ROW WHEN (NEW.answer = {turn_pb2.COMMIT_ANSWER_DONE:d}) EXECUTE FUNCTION watched.note();
"""
_ENDS = "SELECT position FROM watched.ends WHERE session_id = $1 ORDER BY position"


async def watch(connection: Connection) -> None:
    """Note every end from now on, in the transaction that makes it."""
    await connection.execute(_WATCH)


async def ends(connection: Connection, session_id: str) -> list[int]:
    """The log's last position after each end of a session's turns."""
    return [row["position"] for row in await connection.fetch(_ENDS, session_id)]
