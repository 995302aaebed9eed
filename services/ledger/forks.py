"""Forks: a new session that begins with the history of another one up to a closed boundary.

The fork is durable when it is admitted: the new session, what it is copied from, and its first
turn, whose owner copies the history.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from counterfoil.ledger.v1 import session_pb2
from counterfoil.types.v1 import reference_pb2

from foundation import ids, masks
from foundation.storage import Record
from services.ledger import boundaries, fork_store, fork_turn, resource, session_store
from services.ledger.change import Change
from services.ledger.dispatcher import Dispatcher
from services.ledger.fork_store import POSITION_MAX, Fork
from services.ledger.lanes import Lanes
from services.ledger.log_probe import Reader
from services.ledger.reservation import Reservation


class Boundary(NamedTuple):
    """A closed boundary: the thread that holds the history, its head there, and the event that
    names it; None for the history that a session began with."""

    source: reference_pb2.ThreadRef
    cut: reference_pb2.Head
    event_id: str | None


class Forks:
    """Forks sessions of one database."""

    def __init__(self, lanes: Lanes, dispatcher: Dispatcher) -> None:
        self._lanes = lanes
        self._dispatcher = dispatcher

    async def fork(
        self, workspace_id: str, request: session_pb2.ForkSessionRequest
    ) -> session_pb2.Session:
        """Make a session that pins what the source pins; its history is copied by a runner."""
        source_id, db, ring = request.session_id, self._lanes.db, self._lanes.ring
        named = masks.named(request, ("title", "metadata"), ("at_event_id",))
        row = await session_store.get(db, workspace_id, source_id)
        found = await _boundary(db, workspace_id, row, request)
        runtime, _, _ = await session_store.runtimes(db, ring, workspace_id, source_id)
        session = _session(row, session_store.pinned(ring, workspace_id, row), request, named)
        session.forked_from.session_id = source_id
        if found.event_id is not None:
            session.forked_from.event_id = found.event_id
        new = session_store.NewSession(
            workspace_id, ids.new("thread"), session, runtime, resource.born()
        )
        with Reservation(self._lanes, self._dispatcher) as reservation:

            async def admit(change: Change) -> None:
                if found.cut.seq == 0:
                    return
                turn_id = ids.derived("turn", session.id, "fork")
                fork = Fork(turn_id, found.source, found.cut, copied=False)
                await fork_store.insert(change.connection, workspace_id, session.id, fork)
                fork_turn.begin(change.lane, turn_id)
                reservation.take(change)

            change = await self._lanes.create_with("ledger.fork_session", new, admit)
            reservation.give(change)
        row = await session_store.get(db, workspace_id, session.id)
        return resource.session(row, session, datetime.now(UTC))


def _session(
    row: Record,
    pinned: session_pb2.Session,
    request: session_pb2.ForkSessionRequest,
    named: set[str],
) -> session_pb2.Session:
    made = session_pb2.Session(
        id=ids.new("session"), agent=pinned.agent, environment_id=row["environment_id"]
    )
    title = request.title if "title" in named else pinned.title
    if title:
        made.title = title
    made.metadata.update(request.metadata if "metadata" in named else pinned.metadata)
    return made


async def _boundary(
    reader: Reader, workspace_id: str, row: Record, request: session_pb2.ForkSessionRequest
) -> Boundary:
    """The boundary at the named event; without one, that of the newest finished turn."""
    key = workspace_id, row["session_id"]
    place = POSITION_MAX
    if request.HasField("at_event_id"):
        found = await fork_store.place(reader, *key, request.at_event_id)
        if found is None:
            raise boundaries.unknown(request.at_event_id)
        place = found
    while (mark := await fork_store.began(reader, *key, place)) is not None:
        following = await fork_store.next_began(reader, *key, mark.position)
        turn_id = ids.derived("turn", row["session_id"], mark.event_id)
        head = await fork_store.ended(reader, *key, turn_id)
        visible = await fork_store.newest(reader, *key, place, following, boundaries.VISIBLE)
        if head is not None and visible is None:
            named = await fork_store.newest(reader, *key, 0, following, boundaries.NAMED)
            return Boundary(_thread(workspace_id, row), head, named)
        if request.HasField("at_event_id"):
            before = await fork_store.newest(reader, *key, 0, mark.position, boundaries.NAMED)
            raise boundaries.inside(request.at_event_id, before, visible if head else None)
        place = mark.position - 1
    return await _beginning(reader, workspace_id, row)


async def _beginning(reader: Reader, workspace_id: str, row: Record) -> Boundary:
    """What a session began with: nothing, or of a fork what was copied. What has not been copied
    yet is copied from where it is."""
    thread = _thread(workspace_id, row)
    fork = await fork_store.find(reader, workspace_id, row["session_id"])
    if fork is None:
        return Boundary(thread, reference_pb2.Head(), None)
    if not fork.copied:
        return Boundary(fork.source, fork.cut, None)
    head = await fork_store.ended(reader, workspace_id, row["session_id"], fork.turn_id)
    return Boundary(thread, head or reference_pb2.Head(), None)


def _thread(workspace_id: str, row: Record) -> reference_pb2.ThreadRef:
    return reference_pb2.ThreadRef(
        workspace_id=workspace_id, session_id=row["session_id"], thread_id=row["thread_id"]
    )
