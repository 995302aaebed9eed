"""What clients do with sessions: create, read, change, send, archive, delete."""

from collections.abc import Sequence
from datetime import UTC, datetime

from counterfoil.ledger.v1 import client_events_pb2, session_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import reference_pb2

from foundation import ids
from foundation.errors import Failure, invalid, not_found, wrong_state
from services.ledger import (
    admission,
    archive,
    log_store,
    notices,
    resource,
    session_store,
    updates,
)
from services.ledger.change import Change
from services.ledger.definitions import Definitions, Resolved
from services.ledger.dispatcher import Dispatcher
from services.ledger.lane import Lane
from services.ledger.lanes import Lanes
from services.ledger.reservation import Reservation

_ATTEMPTS = 3


class Sessions:
    """Every method works inside one workspace; what is not there is NOT_FOUND."""

    def __init__(
        self,
        lanes: Lanes,
        dispatcher: Dispatcher,
        definitions: Definitions,
    ) -> None:
        self._lanes = lanes
        self._dispatcher = dispatcher
        self._definitions = definitions

    async def create(
        self, workspace_id: str, request: session_pb2.CreateSessionRequest
    ) -> session_pb2.Session:
        """Pin the definitions and store the session with its initial events."""
        updates.check_new(request)
        batch = admission.members(request.initial_events, "initial_events")
        admission.check_initial(batch)
        agent, runtime = await self._definitions.of_new(workspace_id, request)
        session = session_pb2.Session(
            id=ids.new("session"),
            agent=agent,
            environment_id=request.environment_id,
            metadata=request.metadata,
        )
        if request.HasField("title"):
            session.title = request.title
        new = session_store.NewSession(
            workspace_id,
            ids.new("thread"),
            session,
            runtime,
            resource.born(),
        )
        if not batch:
            row = await self._lanes.create("ledger.create_session", new)
            return resource.session(row, session, datetime.now(UTC))
        with Reservation(self._lanes, self._dispatcher) as reservation:

            async def admit(change: Change) -> None:
                admission.admit(change.lane, batch)
                admission.check_size(change.lane)
                reservation.take(change)

            change = await self._lanes.create_with("ledger.create_session", new, admit)
            reservation.give(change)
        return await self.get(workspace_id, session.id)

    async def get(self, workspace_id: str, session_id: str) -> session_pb2.Session:
        """A session as it is now."""
        row = await session_store.get(self._lanes.db, workspace_id, session_id)
        pinned = session_store.pinned(self._lanes.ring, workspace_id, row)
        return resource.session(row, pinned, datetime.now(UTC))

    async def update(
        self, workspace_id: str, request: session_pb2.UpdateSessionRequest
    ) -> session_pb2.Session:
        """Change what the request names; publishes what changed, and nothing for no change."""
        updates.check(request)
        for _ in range(_ATTEMPTS):
            if await self._try_to_update(workspace_id, request):
                return await self.get(workspace_id, request.session_id)
        raise Failure(
            reasons.ERROR_REASON_CONFLICT, "others change this session's agent too; repeat it"
        )

    async def _try_to_update(
        self, workspace_id: str, request: session_pb2.UpdateSessionRequest
    ) -> bool:
        """False when another update of the agent came in between: what was resolved is stale."""
        session_id, ring = request.session_id, self._lanes.ring
        revision, resolved = await self._resolve_update(workspace_id, request)
        async with self._lanes.change("ledger.update_session", workspace_id, session_id) as found:
            change = _present(found, session_id)
            lane = change.lane
            _refuse_terminated(lane)
            if resolved is not None:
                _refuse_running(lane)
                if lane.session.runtime_revision != revision:
                    return False
            row = await session_store.get(change.connection, workspace_id, session_id)
            pinned = session_store.pinned(ring, workspace_id, row)
            changed = updates.apply(pinned, request, resolved and resolved[0])
            if changed is not None:
                notices.updated(lane, changed)
                await session_store.update(change.connection, ring, lane, pinned)
            if resolved is not None:
                await session_store.replace_runtime(change.connection, ring, lane, resolved[1])
        return True

    async def _resolve_update(
        self, workspace_id: str, request: session_pb2.UpdateSessionRequest
    ) -> tuple[int, Resolved | None]:
        """The new agent and runtime, outside the transaction; the revision that they replace."""
        if "agent" not in updates.named(request):
            return 0, None
        row = await session_store.get(self._lanes.db, workspace_id, request.session_id)
        pinned = session_store.pinned(self._lanes.ring, workspace_id, row)
        resolved = await self._definitions.of_updated(
            workspace_id, pinned, row["environment_id"], request.agent
        )
        return row["runtime_revision"], resolved

    async def archive(self, workspace_id: str, session_id: str) -> session_pb2.Session:
        """End the session for good; a second time changes nothing."""
        async with self._lanes.change("ledger.archive_session", workspace_id, session_id) as found:
            change = _present(found, session_id)
            lane = change.lane
            if lane.running:
                raise wrong_state(
                    f"session {session_id} is running: interrupt it, wait for idle, then archive it"
                )
            if not lane.terminated:
                archive.archive(lane)
                await session_store.archive(change.connection, lane)
        return await self.get(workspace_id, session_id)

    async def threads(
        self, workspace_id: str, request: session_pb2.ListThreadsRequest
    ) -> list[session_pb2.Thread]:
        """The session's threads: the primary one, if it is asked for."""
        if request.HasField("page"):
            raise invalid("page", "must be the next_page of this list, which has a single page")
        found = await self._primary(workspace_id, request.session_id)
        return [found] if found.status in (request.statuses or [found.status]) else []

    async def thread(
        self, workspace_id: str, session_id: str, thread_id: str
    ) -> session_pb2.Thread:
        """A thread of the session."""
        found = await self._primary(workspace_id, session_id)
        if found.id != thread_id:
            raise not_found("thread", thread_id[:80])
        return found

    async def archive_thread(
        self, workspace_id: str, session_id: str, thread_id: str
    ) -> session_pb2.Thread:
        """Refused for the primary thread, unless it is over with its session."""
        found = await self.thread(workspace_id, session_id, thread_id)
        if not found.HasField("archived_at"):
            raise wrong_state(
                f"thread {thread_id} is the primary thread: it ends with its session, "
                f"by POST /v1/sessions/{session_id}/archive"
            )
        return found

    async def _primary(self, workspace_id: str, session_id: str) -> session_pb2.Thread:
        row = await session_store.get(self._lanes.db, workspace_id, session_id)
        pinned = session_store.pinned(self._lanes.ring, workspace_id, row)
        return resource.thread(row, pinned, datetime.now(UTC))

    async def submit(
        self, workspace_id: str, session_id: str, events: Sequence[client_events_pb2.ClientEvent]
    ) -> list[bytes]:
        """Admit events, all or none; the stored events as JSON.

        A turn that can run at once is claimed for an attached runner in the same transaction.
        """
        batch = admission.members(events, "events")
        admission.check(batch)
        positions: list[int] = []

        async def decide(change: Change) -> None:
            _present(change, session_id)
            _refuse_terminated(change.lane)
            positions[:] = admission.admit(change.lane, batch)
            before = await change.answered_bytes() if admission.new_answers(change.lane) else 0
            admission.check_size(change.lane, before)
            reservation.take(change)

        with Reservation(self._lanes, self._dispatcher) as reservation:
            found = await self._lanes.apply(
                "ledger.submit_events", workspace_id, session_id, decide
            )
            change = _present(found, session_id)
            reservation.give(change)
        rows = change.planned.rows if change.planned is not None else ()
        first = change.lane.log.position + 1
        return [rows[position - first].json for position in positions]

    async def delete(self, workspace_id: str, session_id: str) -> None:
        """Fence the session, tell its streams, leave the tombstone; runners erase the rest."""
        async with self._lanes.change("ledger.delete_session", workspace_id, session_id) as found:
            change = _present(found, session_id)
            lane = change.lane
            if lane.running:
                raise wrong_state(
                    f"session {session_id} is running: interrupt it, wait for idle, then delete it"
                )
            notices.bury(lane)
            await session_store.bury(change.connection, lane)
        self._lanes.forget(workspace_id, session_id)
        self._dispatcher.erase_soon()

    async def finish_deletion(self, thread: reference_pb2.ThreadRef) -> None:
        """Every other authority erased the thread: erase here too, but for the tombstone."""
        async with self._lanes.db.commit("ledger.finish_deletion") as connection:
            if await session_store.erase(connection, thread):
                await log_store.erase(connection, thread.workspace_id, thread.session_id)


def _present(change: Change | None, session_id: str) -> Change:
    if change is None or change.lane.thread.deleted:
        raise not_found("session", session_id)
    return change


def _refuse_terminated(lane: Lane) -> None:
    if lane.terminated:
        raise wrong_state(f"session {lane.session.session_id} is archived: it can only be read")


def _refuse_running(lane: Lane) -> None:
    if lane.running:
        raise Failure(
            reasons.ERROR_REASON_WRONG_STATE,
            f"session {lane.session.session_id} is running: interrupt it, wait for idle, then "
            "change its tools or MCP servers",
            path="agent",
        )
