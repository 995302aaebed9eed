"""SQL of forks: what they are copied from, and where a session's history can be cut."""

from typing import NamedTuple

from counterfoil.ledger.v1 import turn_pb2
from counterfoil.types.v1 import reference_pb2

from foundation.errors import not_found
from foundation.storage import Connection, Record
from services.ledger.lane import Lane
from services.ledger.log_probe import Reader

_INSERT = """
INSERT INTO ledger.forks
    (session_id, workspace_id, turn_id, source_session_id, source_thread_id, cut_seq, cut_digest)
VALUES ($2, $1, $3, $4, $5, $6, $7)
"""

# A deletion waits for the lock, and then finds that somebody still has to read.
_HOLD = """
SELECT 1 FROM ledger.sessions
WHERE workspace_id = $1 AND session_id = $2 AND deleted_at IS NULL
FOR SHARE
"""

# Done is 6. The turn has no row yet in the transaction that makes it.
_FIND = """
SELECT fork.turn_id, fork.source_session_id, fork.source_thread_id, fork.cut_seq, fork.cut_digest,
    turn.state IS NOT DISTINCT FROM 6 AS copied
FROM ledger.forks fork LEFT JOIN ledger.turns turn USING (workspace_id, session_id, turn_id)
WHERE fork.workspace_id = $1 AND fork.session_id = $2
"""

# Where an event took effect: a queued one (2) at its mark.
_PLACE = """
SELECT position FROM ledger.log
WHERE workspace_id = $1 AND session_id = $2 AND event_id = $3 AND kind <> 2
"""

# The input with which the newest turn began that began at `$3` or before: its mark (3).
_BEGAN = """
SELECT position, event_id FROM ledger.log
WHERE workspace_id = $1 AND session_id = $2 AND event_type = 'user.message' AND kind = 3
    AND position <= $3
ORDER BY position DESC
LIMIT 1
"""

_NEXT_BEGAN = """
SELECT position FROM ledger.log
WHERE workspace_id = $1 AND session_id = $2 AND event_type = 'user.message' AND kind = 3
    AND position > $3
ORDER BY position
LIMIT 1
"""

# The newest event of the types `$5` behind `$3` and before `$4`.
_NEWEST = """
SELECT entry.event_id FROM unnest($5::text[]) AS wanted (event_type)
CROSS JOIN LATERAL (
    SELECT event_id, position FROM ledger.log
    WHERE workspace_id = $1 AND session_id = $2 AND event_type = wanted.event_type AND kind <> 2
        AND position > $3 AND position < $4
    ORDER BY position DESC
    LIMIT 1
) entry
ORDER BY entry.position DESC
LIMIT 1
"""

# A turn that is over (6), and the last transcript entry that was recorded of it.
_ENDED = """
SELECT entry.seq, entry.digest FROM ledger.turns turn
JOIN ledger.entries entry USING (workspace_id, session_id, thread_id, turn_id)
WHERE turn.workspace_id = $1 AND turn.session_id = $2 AND turn.turn_id = $3 AND turn.state = 6
ORDER BY entry.seq DESC
LIMIT 1
"""

POSITION_MAX = 2**63 - 1


class Mark(NamedTuple):
    """The mark of a turn's input."""

    position: int
    event_id: str


class Fork(NamedTuple):
    """What a fork's history comes from, and whether it has been copied by its turn."""

    turn_id: str
    source: reference_pb2.ThreadRef
    cut: reference_pb2.Head
    copied: bool


async def insert(connection: Connection, workspace_id: str, session_id: str, fork: Fork) -> None:
    """Record what a new session is copied from; raises NOT_FOUND when that was deleted."""
    source, cut = fork.source, fork.cut
    if await connection.fetchval(_HOLD, workspace_id, source.session_id) is None:
        raise not_found("session", source.session_id)
    row = (fork.turn_id, source.session_id, source.thread_id, cut.seq, cut.digest)
    await connection.execute(_INSERT, workspace_id, session_id, *row)


async def find(reader: Reader, workspace_id: str, session_id: str) -> Fork | None:
    """What a session's history was or will be copied from; None for a session without."""
    row = await reader.fetchrow(_FIND, workspace_id, session_id)
    if row is None:
        return None
    source = reference_pb2.ThreadRef(
        workspace_id=workspace_id,
        session_id=row["source_session_id"],
        thread_id=row["source_thread_id"],
    )
    cut = reference_pb2.Head(seq=row["cut_seq"], digest=row["cut_digest"])
    return Fork(row["turn_id"], source, cut, row["copied"])


async def source_of(reader: Reader, lane: Lane) -> turn_pb2.ForkSource | None:
    """What the owner of a lane's front turn copies; None for a turn with an input."""
    if not lane.turns[0].copies_history:
        return None
    fork = await find(reader, lane.session.workspace_id, lane.session.session_id)
    assert fork is not None
    return turn_pb2.ForkSource(thread=fork.source, head=fork.cut)


async def place(reader: Reader, workspace_id: str, session_id: str, event_id: str) -> int | None:
    """Position at which an event took effect; None while it has not, and for an unknown one."""
    return await reader.fetchval(_PLACE, workspace_id, session_id, event_id)


async def began(reader: Reader, workspace_id: str, session_id: str, through: int) -> Mark | None:
    """Where the newest turn began that began at a position or before."""
    row: Record | None = await reader.fetchrow(_BEGAN, workspace_id, session_id, through)
    return None if row is None else Mark(*row)


async def next_began(reader: Reader, workspace_id: str, session_id: str, after: int) -> int:
    """Where the next turn began behind a position; beyond every position while none did."""
    found: int | None = await reader.fetchval(_NEXT_BEGAN, workspace_id, session_id, after)
    return POSITION_MAX if found is None else found


async def newest(
    reader: Reader,
    workspace_id: str,
    session_id: str,
    after: int,
    before: int,
    types: tuple[str, ...],
) -> str | None:
    """The newest event of some types between two positions."""
    key = workspace_id, session_id
    return await reader.fetchval(_NEWEST, *key, after, before, list(types))


async def ended(
    reader: Reader, workspace_id: str, session_id: str, turn_id: str
) -> reference_pb2.Head | None:
    """The transcript's head behind a finished turn; None while it is not finished."""
    row = await reader.fetchrow(_ENDED, workspace_id, session_id, turn_id)
    return None if row is None else reference_pb2.Head(seq=row["seq"], digest=row["digest"])
