"""gRPC in and out of the ledger."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from counterfoil.ledger.v1 import (
    inspection_pb2,
    session_pb2,
    session_pb2_grpc,
    turn_pb2,
    turn_pb2_grpc,
)
from counterfoil.registry.v1 import registry_pb2_grpc
from counterfoil.tools.v1 import tools_pb2_grpc

from foundation import measures
from foundation.errors import not_found, wrong_state
from foundation.rpc.context import workspace
from services.ledger import (
    boundaries,
    counting,
    export_service,
    interrupt,
    lease_store,
    session_store,
    typed,
)
from services.ledger.attach import Attachments
from services.ledger.definitions import Definitions
from services.ledger.dispatcher import Dispatcher
from services.ledger.forks import Forks
from services.ledger.ids import is_id, known
from services.ledger.inspection import Inspection
from services.ledger.lanes import Lanes
from services.ledger.log_list import History
from services.ledger.redacting import EventRedactor
from services.ledger.session_pages import SessionPages
from services.ledger.sessions import Sessions
from services.ledger.stream import Hub
from services.ledger.streams import stream_prefix
from services.ledger.turn_writes import TurnWrites
from services.ledger.verify import Verifier

if TYPE_CHECKING:
    from foundation.bootstrap import Kernel


async def start(kernel: "Kernel") -> None:
    """Open the database and serve both sides of the ledger."""
    db, ring = await kernel.database("ledger"), kernel.ring
    hub = Hub(db, ring, session_store.probe)
    lanes = Lanes(db, ring, hub)
    lanes.subscribe(counting.count)
    dispatcher = Dispatcher(db, lanes, boots=kernel.boots)
    sessions = Sessions(
        lanes,
        dispatcher,
        Definitions(
            registry_pb2_grpc.RegistryServiceStub(kernel.channel("registry")),
            tools_pb2_grpc.ToolServiceStub(kernel.channel("tools")),
        ),
    )
    verifier = Verifier(db, ring, session_store.probe)
    kernel.register(
        session_pb2_grpc.add_SessionServiceServicer_to_server,
        SessionServicer(
            sessions,
            Forks(lanes, dispatcher),
            SessionPages(db, ring),
            History(db, ring, session_store.probe),
            hub,
            Inspection(db, session_store.probe, verifier),
        ),
    )
    kernel.register(
        turn_pb2_grpc.add_TurnServiceServicer_to_server,
        TurnServicer(
            lanes,
            sessions,
            Attachments(lanes, dispatcher),
            hub,
            verifier,
            EventRedactor(db, ring),
        ),
    )
    export_service.register(kernel, db, verifier)
    kernel.watch(measures.STREAMS.watch(lambda: hub.subscribers, "ledger"))
    kernel.watch(measures.QUEUE_AGE.watch_async(lambda: lease_store.queue_age(db)))
    kernel.spawn(hub.run(), "ledger-hub")
    kernel.spawn(dispatcher.run(), "ledger-dispatcher")


async def void_leases(kernel: "Kernel") -> None:
    """Free the leases of earlier boots on this data folder: for whoever holds its lock, before
    anything is served. Leases of other processes that share the database are theirs."""
    if kernel.boots:
        prefix = stream_prefix(kernel.boots)
        await lease_store.free_boots(await kernel.database("ledger"), prefix)


class SessionServicer(session_pb2_grpc.SessionServiceServicer):
    """Public: sessions, their threads, their events."""

    def __init__(
        self,
        sessions: Sessions,
        forks: Forks,
        pages: SessionPages,
        history: History,
        hub: Hub,
        inspection: Inspection,
    ) -> None:
        self._sessions = sessions
        self._forks = forks
        self._pages = pages
        self._inspection = inspection
        self._history = history
        self._hub = hub

    async def CreateSession(
        self, request: session_pb2.CreateSessionRequest, context: Any
    ) -> session_pb2.CreateSessionResponse:
        session = await self._sessions.create(workspace(), request)
        return session_pb2.CreateSessionResponse(session=session)

    async def GetSession(
        self, request: session_pb2.GetSessionRequest, context: Any
    ) -> session_pb2.GetSessionResponse:
        session = await self._sessions.get(workspace(), known(request.session_id))
        return session_pb2.GetSessionResponse(session=session)

    async def ListSessions(
        self, request: session_pb2.ListSessionsRequest, context: Any
    ) -> session_pb2.ListSessionsResponse:
        return await self._pages.list_sessions(workspace(), request)

    async def UpdateSession(
        self, request: session_pb2.UpdateSessionRequest, context: Any
    ) -> session_pb2.UpdateSessionResponse:
        known(request.session_id)
        session = await self._sessions.update(workspace(), request)
        return session_pb2.UpdateSessionResponse(session=session)

    async def ArchiveSession(
        self, request: session_pb2.ArchiveSessionRequest, context: Any
    ) -> session_pb2.ArchiveSessionResponse:
        session = await self._sessions.archive(workspace(), known(request.session_id))
        return session_pb2.ArchiveSessionResponse(session=session)

    async def DeleteSession(
        self, request: session_pb2.DeleteSessionRequest, context: Any
    ) -> session_pb2.DeleteSessionResponse:
        await self._sessions.delete(workspace(), known(request.session_id))
        return session_pb2.DeleteSessionResponse(id=request.session_id)

    async def ForkSession(
        self, request: session_pb2.ForkSessionRequest, context: Any
    ) -> session_pb2.ForkSessionResponse:
        known(request.session_id)
        if request.HasField("at_event_id") and not is_id(request.at_event_id):
            raise boundaries.unknown(request.at_event_id)
        session = await self._forks.fork(workspace(), request)
        return session_pb2.ForkSessionResponse(session=session)

    async def SubmitEvents(
        self, request: session_pb2.SubmitEventsRequest, context: Any
    ) -> session_pb2.SubmitEventsResponse:
        data = await self._sessions.submit(workspace(), known(request.session_id), request.events)
        return session_pb2.SubmitEventsResponse(data=data)

    async def ListEvents(
        self, request: session_pb2.ListEventsRequest, context: Any
    ) -> session_pb2.ListEventsResponse:
        await self._check_thread(workspace(), known(request.session_id), request.thread_id)
        response = await self._history.list_events(workspace(), request)
        return typed.page(response) if request.typed else response

    def StreamEvents(
        self, request: session_pb2.StreamEventsRequest, context: Any
    ) -> AsyncIterator[session_pb2.StreamEventsResponse]:
        known(request.session_id)
        chosen = self._stream_thread if request.thread_id else self._hub.stream
        responses = chosen(workspace(), request)
        return typed.stream(responses) if request.typed else responses

    async def ListPendingActions(
        self, request: inspection_pb2.ListPendingActionsRequest, context: Any
    ) -> inspection_pb2.ListPendingActionsResponse:
        return await self._inspection.pending_actions(workspace(), known(request.session_id))

    async def VerifySession(
        self, request: inspection_pb2.VerifySessionRequest, context: Any
    ) -> inspection_pb2.VerifySessionResponse:
        known(request.session_id)
        return await self._inspection.verify(workspace(), request)

    async def ListThreads(
        self, request: session_pb2.ListThreadsRequest, context: Any
    ) -> session_pb2.ListThreadsResponse:
        known(request.session_id)
        threads = await self._sessions.threads(workspace(), request)
        return session_pb2.ListThreadsResponse(data=threads)

    async def GetThread(
        self, request: session_pb2.GetThreadRequest, context: Any
    ) -> session_pb2.GetThreadResponse:
        session_id, thread_id = known(request.session_id), request.thread_id
        thread = await self._sessions.thread(workspace(), session_id, thread_id)
        return session_pb2.GetThreadResponse(thread=thread)

    async def ArchiveThread(
        self, request: session_pb2.ArchiveThreadRequest, context: Any
    ) -> session_pb2.ArchiveThreadResponse:
        session_id, thread_id = known(request.session_id), request.thread_id
        thread = await self._sessions.archive_thread(workspace(), session_id, thread_id)
        return session_pb2.ArchiveThreadResponse(thread=thread)

    async def _stream_thread(
        self, workspace_id: str, request: session_pb2.StreamEventsRequest
    ) -> AsyncGenerator[session_pb2.StreamEventsResponse]:
        """The primary thread shows what the session shows, and no session has another yet."""
        await self._check_thread(workspace_id, request.session_id, request.thread_id)
        async with aclosing(self._hub.stream(workspace_id, request)) as responses:
            async for response in responses:
                yield response

    async def _check_thread(self, workspace_id: str, session_id: str, thread_id: str) -> None:
        if thread_id:
            await self._sessions.thread(workspace_id, session_id, thread_id)


class TurnServicer(turn_pb2_grpc.TurnServiceServicer):
    """Internal: who may run a turn, and what of it becomes public."""

    def __init__(
        self,
        lanes: Lanes,
        sessions: Sessions,
        attachments: Attachments,
        hub: Hub,
        verifier: Verifier,
        redactor: EventRedactor,
    ) -> None:
        self._redactor = redactor
        self._lanes = lanes
        self._writes = TurnWrites(lanes)
        self._sessions = sessions
        self._attachments = attachments
        self._hub = hub
        self._verifier = verifier

    def Attach(
        self, request_iterator: AsyncIterator[turn_pb2.AttachRequest], context: Any
    ) -> AsyncIterator[turn_pb2.AttachResponse]:
        return self._attachments.attach(request_iterator)

    async def BeginRound(
        self, request: turn_pb2.BeginRoundRequest, context: Any
    ) -> turn_pb2.BeginRoundResponse:
        return await self._writes.begin_round(request)

    async def AppendRound(
        self, request: turn_pb2.AppendRoundRequest, context: Any
    ) -> turn_pb2.AppendRoundResponse:
        return await self._writes.append_round(request)

    async def AppendProgress(
        self, request: turn_pb2.AppendProgressRequest, context: Any
    ) -> turn_pb2.AppendProgressResponse:
        return await self._writes.append_progress(request)

    async def CommitTurn(
        self, request: turn_pb2.CommitTurnRequest, context: Any
    ) -> turn_pb2.CommitTurnResponse:
        return await self._writes.commit_turn(request)

    async def PublishPreviews(
        self, request: turn_pb2.PublishPreviewsRequest, context: Any
    ) -> turn_pb2.PublishPreviewsResponse:
        thread = request.fence.thread
        self._hub.publish(
            thread.workspace_id, thread.session_id, request.span_event_id, request.previews
        )
        return turn_pb2.PublishPreviewsResponse()

    async def ReleaseTurn(
        self, request: turn_pb2.ReleaseTurnRequest, context: Any
    ) -> turn_pb2.ReleaseTurnResponse:
        turn_id = known(request.turn_id, "turn")
        thread = await session_store.home_of_turn(self._lanes.db, turn_id)
        async with self._lanes.change(
            "ledger.release_turn", thread.workspace_id, thread.session_id
        ) as change:
            if change is None or change.lane.thread.deleted:
                raise not_found("turn", request.turn_id)
            if not interrupt.release(change.lane, request.turn_id):
                raise wrong_state(f"turn {request.turn_id} is not quarantined")
        return turn_pb2.ReleaseTurnResponse(thread=thread)

    async def VerifyLog(
        self, request: turn_pb2.VerifyLogRequest, context: Any
    ) -> turn_pb2.VerifyLogResponse:
        thread = await session_store.home_of_session(self._lanes.db, known(request.session_id))
        if request.workspace_id and request.workspace_id != thread.workspace_id:
            raise not_found("session", request.session_id)
        response = await self._verifier.verify(thread.workspace_id, thread.session_id)
        response.thread.CopyFrom(thread)
        return response

    async def LocateThread(
        self, request: turn_pb2.LocateThreadRequest, context: Any
    ) -> turn_pb2.LocateThreadResponse:
        thread = await session_store.home_of_session(
            self._lanes.db, known(request.session_id), request.workspace_id
        )
        return turn_pb2.LocateThreadResponse(thread=thread)

    async def LocateEvent(
        self, request: turn_pb2.LocateEventRequest, context: Any
    ) -> turn_pb2.LocateEventResponse:
        thread = await session_store.home_of_session(self._lanes.db, known(request.session_id))
        return await self._redactor.locate(thread, known(request.event_id, "event"))

    async def RedactEvents(
        self, request: turn_pb2.RedactEventsRequest, context: Any
    ) -> turn_pb2.RedactEventsResponse:
        response = await self._redactor.redact(request)
        self._lanes.forget(request.thread.workspace_id, request.thread.session_id)
        return response

    async def FinishDeletion(
        self, request: turn_pb2.FinishDeletionRequest, context: Any
    ) -> turn_pb2.FinishDeletionResponse:
        await self._sessions.finish_deletion(request.thread)
        return turn_pb2.FinishDeletionResponse()
