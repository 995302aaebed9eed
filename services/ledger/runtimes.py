"""What turns run with, kept in memory by session and revision.

An update raises the session's revision in its own transaction, and every claim reads the revision
under the session's lock: a copy of another revision is read again, whichever process updated it.
"""

from dataclasses import dataclass

from counterfoil.types.v1 import runtime_pb2

from foundation.storage import SealRing
from services.ledger import session_store
from services.ledger.lane import Lane
from services.ledger.log_probe import Reader

_SESSIONS_MAX = 1024


@dataclass(frozen=True, slots=True)
class Pinned:
    """What a session pins: `before` for turns whose input is at `before_through` or earlier."""

    revision: int
    current: runtime_pb2.SessionRuntime
    before: runtime_pb2.SessionRuntime | None
    before_through: int

    def of(self, input_position: int) -> runtime_pb2.SessionRuntime:
        """What the turn with this input runs with."""
        if self.before is not None and input_position <= self.before_through:
            return self.before
        return self.current


class Runtimes:
    """The copies of one process."""

    def __init__(self, ring: SealRing) -> None:
        self._ring = ring
        self._known: dict[tuple[str, str], Pinned] = {}

    def forget(self, workspace_id: str, session_id: str) -> None:
        """Drop the copy of a deleted session."""
        self._known.pop((workspace_id, session_id), None)

    async def of(self, reader: Reader, lane: Lane) -> runtime_pb2.SessionRuntime:
        """What the front turn of a lane runs with."""
        session = lane.session
        key = session.workspace_id, session.session_id
        found = self._known.get(key)
        if found is None or found.revision != session.runtime_revision:
            stored = await session_store.runtimes(reader, self._ring, *key)
            found = self._keep(key, Pinned(session.runtime_revision, *stored))
        return found.of(lane.turns[0].input_position)

    def keep(self, lane: Lane, runtime: runtime_pb2.SessionRuntime) -> None:
        """A new session pins this."""
        session = lane.session
        key = session.workspace_id, session.session_id
        self._keep(key, Pinned(session.runtime_revision, runtime, None, 0))

    def _keep(self, key: tuple[str, str], pinned: Pinned) -> Pinned:
        self._known.pop(key, None)
        if len(self._known) >= _SESSIONS_MAX:
            self._known.pop(next(iter(self._known)))
        self._known[key] = pinned
        return pinned
