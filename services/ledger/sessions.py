"""What clients do with sessions: create, read, send, delete."""

from collections.abc import Sequence
from datetime import UTC, datetime

from counterfoil.ledger.v1 import events_pb2, session_pb2
from counterfoil.registry.v1 import registry_pb2, registry_pb2_grpc
from counterfoil.tools.v1 import tools_pb2, tools_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import reference_pb2

from foundation import ids
from foundation.errors import Failure, invalid, not_found, wrong_state
from services.ledger import admission, log_store, notices, resource, session_store
from services.ledger.dispatcher import Dispatcher
from services.ledger.lanes import Change, Lanes


class Sessions:
    """Every method works inside one workspace; what is not there is NOT_FOUND."""

    def __init__(
        self,
        lanes: Lanes,
        dispatcher: Dispatcher,
        registry: registry_pb2_grpc.RegistryServiceStub,
        tools: tools_pb2_grpc.ToolServiceStub,
    ) -> None:
        self._lanes = lanes
        self._dispatcher = dispatcher
        self._registry = registry
        self._tools = tools

    async def create(
        self, workspace_id: str, request: session_pb2.CreateSessionRequest
    ) -> session_pb2.Session:
        """Pin the definitions and store the session with its initial events."""
        batch = admission.members(request.initial_events, "initial_events")
        admission.check_initial(batch)
        definitions = await self._definitions(workspace_id, request)
        resolved = await self._tools.ResolveRuntime(
            tools_pb2.ResolveRuntimeRequest(
                workspace_id=workspace_id,
                agent=definitions.agent,
                environment=definitions.environment,
            )
        )
        if resolved.runtime.ByteSize() > admission.RUNTIME_BYTES_MAX:
            limit = admission.RUNTIME_BYTES_MAX
            raise Failure(
                reasons.ERROR_REASON_TOO_LARGE,
                f"the agent's system prompt and tools may hold {limit} bytes together",
                path="agent",
            )
        session = session_pb2.Session(
            id=ids.new("session"),
            agent=resource.agent(definitions.agent),
            environment_id=request.environment_id,
            metadata=request.metadata,
        )
        if request.HasField("title"):
            session.title = request.title
        with self._dispatcher.reservation() as reservation:

            def admit(change: Change) -> None:
                if batch:
                    admission.admit(change.lane, batch)
                    admission.check_size(change.lane)
                    reservation.take(change)

            new = session_store.NewSession(
                workspace_id,
                ids.new("thread"),
                session,
                resolved.runtime,
                datetime.now(UTC),
                admit,
            )
            reservation.give(await self._lanes.create("ledger.create_session", new))
        return await self.get(workspace_id, session.id)

    async def get(self, workspace_id: str, session_id: str) -> session_pb2.Session:
        """A session as it is now."""
        row = await session_store.get(self._lanes.db, workspace_id, session_id)
        pinned = session_store.pinned(self._lanes.ring, workspace_id, row)
        return resource.session(row, pinned, datetime.now(UTC))

    async def threads(self, workspace_id: str, session_id: str) -> list[session_pb2.Thread]:
        """The session's threads: the primary one."""
        row = await session_store.get(self._lanes.db, workspace_id, session_id)
        pinned = session_store.pinned(self._lanes.ring, workspace_id, row)
        return [resource.thread(row, pinned, datetime.now(UTC))]

    async def submit(
        self, workspace_id: str, session_id: str, events: Sequence[events_pb2.ClientEvent]
    ) -> list[bytes]:
        """Admit events, all or none; the stored events as JSON.

        A turn that can run at once is claimed for an attached runner in the same transaction.
        """
        batch = admission.members(events, "events")
        admission.check(batch)
        with self._dispatcher.reservation() as reservation:
            async with self._lanes.change(
                "ledger.submit_events", workspace_id, session_id
            ) as change:
                if change is None or change.lane.thread.deleted:
                    raise not_found("session", session_id)
                positions = admission.admit(change.lane, batch)
                before = await change.answered_bytes() if admission.new_answers(change.lane) else 0
                admission.check_size(change.lane, before)
                reservation.take(change)
            reservation.give(change)
        rows = change.planned.rows if change.planned is not None else ()
        first = change.lane.log.position + 1
        return [rows[position - first].json for position in positions]

    async def delete(self, workspace_id: str, session_id: str) -> None:
        """Fence the session, tell its streams, leave the tombstone; runners erase the rest."""
        async with self._lanes.change("ledger.delete_session", workspace_id, session_id) as change:
            if change is None or change.lane.thread.deleted:
                raise not_found("session", session_id)
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

    async def _definitions(
        self, workspace_id: str, request: session_pb2.CreateSessionRequest
    ) -> registry_pb2.ResolveDefinitionsResponse:
        """The agent version and the environment; what is unknown is the request's fault."""
        reference = request.agent.agent
        try:
            return await self._registry.ResolveDefinitions(
                registry_pb2.ResolveDefinitionsRequest(
                    workspace_id=workspace_id,
                    agent_id=reference.id,
                    agent_version=reference.version,
                    environment_id=request.environment_id,
                )
            )
        except Failure as failure:
            if failure.reason != reasons.ERROR_REASON_NOT_FOUND:
                raise
            raise invalid(failure.path or "agent", failure.message) from failure
