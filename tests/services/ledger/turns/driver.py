"""A ledger over real PostgreSQL, a client of it, and a runner that does what a test tells it."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, cast

from counterfoil.ledger.v1 import (
    agent_events_pb2,
    client_events_pb2,
    events_pb2,
    session_events_pb2,
    session_pb2,
    turn_pb2,
)
from counterfoil.registry.v1 import registry_pb2_grpc
from counterfoil.tools.v1 import tools_pb2_grpc
from counterfoil.types.v1 import reference_pb2, usage_pb2

from foundation import ids
from foundation.errors import Failure
from foundation.rpc.context import CallContext, serving
from foundation.storage import Database, SealRing
from services.ledger import session_store
from services.ledger.attach import Attachments
from services.ledger.definitions import Definitions
from services.ledger.dispatcher import Dispatcher
from services.ledger.forks import Forks
from services.ledger.inspection import Inspection
from services.ledger.lanes import Lanes
from services.ledger.log_list import History
from services.ledger.redacting import EventRedactor
from services.ledger.service import SessionServicer, TurnServicer
from services.ledger.session_pages import SessionPages
from services.ledger.sessions import Sessions
from services.ledger.stream import Hub
from services.ledger.verify import Verifier
from tests.services.ledger.turns.events import (
    message,
    result,
    short,
    text_block,
    use,
)
from tests.services.ledger.turns.neighbours import AGENT, ENVIRONMENT, Registry, Tools

WORKSPACE = ids.derived("workspace", "ours")
FOREIGN = ids.derived("workspace", "theirs")

NO_REASON = session_events_pb2.STOP_REASON_TYPE_UNSPECIFIED
END_TURN = session_events_pb2.STOP_REASON_TYPE_END_TURN


@dataclass
class Ledger:
    """One ledger process."""

    db: Database
    ring: SealRing
    hub: Hub
    lanes: Lanes
    dispatcher: Dispatcher
    sessions: SessionServicer
    turns: TurnServicer
    thread: reference_pb2.ThreadRef = field(default_factory=reference_pb2.ThreadRef)

    # The client.

    async def create(self, *texts: str) -> session_pb2.Session:
        request = session_pb2.CreateSessionRequest(
            agent=session_pb2.AgentReference(agent=session_pb2.AgentVersionReference(id=AGENT)),
            environment_id=ENVIRONMENT,
            title="Trip",
            metadata={"trip": "7"},
            initial_events=[message(text) for text in texts],
        )
        with serving(CallContext("req", WORKSPACE)):
            session = (await self.sessions.CreateSession(request, None)).session
        self.thread = await session_store.home_of_session(self.db, session.id)
        return session

    async def get(self, workspace: str = WORKSPACE) -> session_pb2.Session:
        request = session_pb2.GetSessionRequest(session_id=self.thread.session_id)
        with serving(CallContext("req", workspace)):
            return (await self.sessions.GetSession(request, None)).session

    async def send(
        self, *events: client_events_pb2.ClientEvent, workspace: str = WORKSPACE
    ) -> list[dict[str, Any]]:
        request = session_pb2.SubmitEventsRequest(session_id=self.thread.session_id, events=events)
        with serving(CallContext("req", workspace)):
            response = await self.sessions.SubmitEvents(request, None)
        return [json.loads(body) for body in response.data]

    async def delete(self, workspace: str = WORKSPACE) -> None:
        request = session_pb2.DeleteSessionRequest(session_id=self.thread.session_id)
        with serving(CallContext("req", workspace)):
            await self.sessions.DeleteSession(request, None)

    async def log(self, after: int = 0) -> list[dict[str, Any]]:
        """Every entry behind a position, as streams deliver it."""
        request = session_pb2.StreamEventsRequest(
            session_id=self.thread.session_id, position_after=after
        )
        entries: list[dict[str, Any]] = []
        head = (await session_store.probe(self.db, WORKSPACE, self.thread.session_id)).head  # type: ignore[union-attr]
        if head.position == after:
            return []
        with serving(CallContext("req", WORKSPACE)):
            stream = self.sessions.StreamEvents(request, None)
        async for response in stream:
            entries.extend(json.loads(frame.json) for frame in response.frames)
            if response.position_through >= head.position:
                break
        await stream.aclose()  # type: ignore[attr-defined]
        return entries

    async def types(self, after: int = 0) -> list[str]:
        """The log in short: `type`, with `?` behind queued entries and details of idles."""
        return [short(entry) for entry in await self.log(after)]

    @property
    async def position(self) -> int:
        found = await session_store.probe(self.db, WORKSPACE, self.thread.session_id)
        assert found is not None
        return found.head.position

    # Runners.

    @asynccontextmanager
    async def runner(
        self, capacity: int = 8, held: Sequence[turn_pb2.HeldClaim] = ()
    ) -> AsyncGenerator["Runner"]:
        runner = Runner(self)
        await runner.attach(capacity, held)
        try:
            yield runner
        finally:
            await runner.detach()


class Runner:
    """A runner; the transcript that it writes is shared by all runners of a test."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._requests: asyncio.Queue[turn_pb2.AttachRequest | None] = asyncio.Queue()
        self._responses: AsyncIterator[turn_pb2.AttachResponse] | None = None
        self.attached = turn_pb2.Attached()

    async def attach(self, capacity: int, held: Sequence[turn_pb2.HeldClaim]) -> None:
        hello = turn_pb2.AttachHello(runner_name="runner", capacity=capacity, held=held)
        self._requests.put_nowait(turn_pb2.AttachRequest(hello=hello))
        self._responses = self.ledger.turns.Attach(self._outgoing(), None)
        self.attached = (await self.receive()).attached

    async def detach(self) -> None:
        await self._responses.aclose()  # type: ignore[union-attr]

    async def receive(self) -> turn_pb2.AttachResponse:
        assert self._responses is not None
        async with asyncio.timeout(10):
            return await anext(self._responses)

    async def claimed(self) -> "Turn":
        response = await self.receive()
        assert response.WhichOneof("message") == "claim", response
        return Turn(self.ledger, response.claim)

    def heartbeat(self, number: int = 0) -> None:
        beat = turn_pb2.AttachHeartbeat(number=number)
        self._requests.put_nowait(turn_pb2.AttachRequest(heartbeat=beat))

    def release(self, turn: "Turn", reason: "turn_pb2.ReleaseReason.ValueType") -> None:
        release = turn_pb2.AttachRelease(claim=turn.held, reason=reason)
        self._requests.put_nowait(turn_pb2.AttachRequest(release=release))

    async def _outgoing(self) -> AsyncIterator[turn_pb2.AttachRequest]:
        while (request := await self._requests.get()) is not None:
            yield request


class Turn:
    """A claimed turn and what its owner says about it."""

    def __init__(self, ledger: Ledger, claim: turn_pb2.Claim) -> None:
        self.ledger = ledger
        self.claim = claim
        self.id = claim.turn_id
        self.seq = claim.transcript_head.seq
        self.round = claim.round
        self.calls: list[turn_pb2.RoundCall] = list(claim.calls)

    @property
    def fence(self) -> reference_pb2.Fence:
        return reference_pb2.Fence(thread=self.claim.thread, epoch=self.claim.epoch)

    @property
    def held(self) -> turn_pb2.HeldClaim:
        return turn_pb2.HeldClaim(thread=self.claim.thread, epoch=self.claim.epoch)

    def entry(
        self, kind: "turn_pb2.EntryKind.ValueType", *operations: str, name: str = ""
    ) -> turn_pb2.EntryRecord:
        """The next transcript entry."""
        self.seq += 1
        entry_id = ids.derived("entry", self.id, self.seq, name)
        return turn_pb2.EntryRecord(
            entry_id=entry_id,
            seq=self.seq,
            digest=sha256(entry_id.encode()).digest(),
            kind=kind,
            operation_ids=operations,
        )

    def attempt(self, number: int = 1) -> reference_pb2.Attempt:
        return reference_pb2.Attempt(epoch=self.claim.epoch, number=number)

    def span(self, round_: int, number: int = 1, epoch: int = 0) -> str:
        return ids.derived("event", "span", self.id, round_, epoch or self.claim.epoch, number)

    async def begin(
        self,
        number: int = 1,
        compaction: str = "",
        summaries: Sequence[usage_pb2.ModelUsage] = (),
    ) -> turn_pb2.BeginRoundResponse:
        request = turn_pb2.BeginRoundRequest(
            fence=self.fence,
            turn_id=self.id,
            round=self.round + 1,
            attempt=self.attempt(number),
            span_event_id=self.span(self.round + 1, number),
            compaction_event_id=compaction,
            summary_usage=summaries,
        )
        return await self.ledger.turns.BeginRound(request, None)

    def answer(
        self,
        *calls: tuple[Any, Any],
        text: str = "",
        commit: "turn_pb2.CommitKind.ValueType" = turn_pb2.COMMIT_KIND_UNSPECIFIED,
        entries: Sequence[turn_pb2.EntryRecord] = (),
        stop: "session_events_pb2.StopReasonType.ValueType" = END_TURN,
        number: int = 1,
    ) -> turn_pb2.AppendRoundRequest:
        """The next round as a request: `calls` are pairs of owner and policy."""
        round_ = self.round + 1
        before = list(entries)
        if self.seq == 0 or (round_ == 0 and not before):
            before.append(self.entry(turn_pb2.ENTRY_KIND_INPUT))
        answer = self.entry(turn_pb2.ENTRY_KIND_ANSWER)
        events: list[events_pb2.Event] = []
        if text:
            said = agent_events_pb2.AgentMessage(content=[text_block(text)])
            events.append(events_pb2.Event(id=self._id("message", round_), agent_message=said))
        self.calls = []
        for index, (owner, policy) in enumerate(calls):
            call = turn_pb2.RoundCall(
                use_event_id=self._id("use", round_, index),
                operation_id=ids.derived("operation", self.id, round_, index),
                block_index=index,
                owner=owner,
                policy=policy,
                name=f"tool_{index}",
            )
            self.calls.append(call)
            events.append(use(call))
        return turn_pb2.AppendRoundRequest(
            fence=self.fence,
            turn_id=self.id,
            round=round_,
            attempt=self.attempt(number),
            entries=[*before, answer],
            answer_entry_id=answer.entry_id,
            answer_digest=answer.digest,
            events=events,
            calls=self.calls,
            usage=usage_pb2.ModelUsage(input_tokens=10, output_tokens=5),
            commit=commit,
            stop_reason=stop,
            span_event_id=self.span(round_, number),
        )

    async def append(self, request: turn_pb2.AppendRoundRequest) -> turn_pb2.AppendRoundResponse:
        response = await self.ledger.turns.AppendRound(request, None)
        self.round = max(self.round, request.round)
        return response

    async def ask(self, *calls: tuple[Any, Any], **more: Any) -> turn_pb2.AppendRoundResponse:
        """Begin a round and publish its answer."""
        await self.begin()
        return await self.append(self.answer(*calls, **more))

    async def say(self, text: str, **more: Any) -> turn_pb2.AppendRoundResponse:
        """A round of text that ends the turn."""
        return await self.ask(text=text, commit=turn_pb2.COMMIT_KIND_DONE, **more)

    def results(self) -> turn_pb2.EntryRecord:
        """The results entry of the newest round."""
        operations = [call.operation_id for call in self.calls]
        return self.entry(turn_pb2.ENTRY_KIND_RESULTS, *operations)

    async def progress(
        self,
        *calls: turn_pb2.RoundCall,
        entries: Sequence[turn_pb2.EntryRecord] = (),
        text: str = "ok",
        is_error: bool = False,
    ) -> turn_pb2.AppendProgressResponse:
        """Publish results of these calls."""
        request = turn_pb2.AppendProgressRequest(
            fence=self.fence,
            turn_id=self.id,
            results=[result(call, text, is_error) for call in calls],
            entries=entries,
        )
        return await self.ledger.turns.AppendProgress(request, None)

    async def commit(
        self,
        kind: "turn_pb2.CommitKind.ValueType",
        *entries: turn_pb2.EntryRecord,
        stop: "session_events_pb2.StopReasonType.ValueType" = NO_REASON,
        errors: Sequence[events_pb2.Event] = (),
        summaries: Sequence[usage_pb2.ModelUsage] = (),
    ) -> turn_pb2.CommitTurnResponse:
        request = turn_pb2.CommitTurnRequest(
            fence=self.fence,
            turn_id=self.id,
            round=self.round,
            kind=kind,
            entries=entries,
            stop_reason=stop,
            errors=errors,
            summary_usage=summaries,
        )
        return await self.ledger.turns.CommitTurn(request, None)

    def _id(self, *coordinates: str | int) -> str:
        return ids.derived("event", self.id, self.claim.epoch, *coordinates)


@asynccontextmanager
async def open_ledger(dsn: str, **options: Any) -> AsyncGenerator[Ledger]:
    """A ledger process on a migrated database. Its loops run only where a test starts them."""
    db = await Database.open(dsn, service="ledger")
    ring = SealRing("k1", {"k1": b"k" * 32})
    hub = Hub(db, ring, session_store.probe)
    lanes = Lanes(db, ring, hub)
    dispatcher = Dispatcher(db, lanes, **options)
    registry = cast(registry_pb2_grpc.RegistryServiceStub, Registry())
    definitions = Definitions(registry, cast(tools_pb2_grpc.ToolServiceStub, Tools()))
    sessions = Sessions(lanes, dispatcher, definitions)
    pages = SessionPages(db, ring)
    history, verifier = (
        History(db, ring, session_store.probe),
        Verifier(db, ring, session_store.probe),
    )
    inspection = Inspection(db, session_store.probe, verifier)
    public = SessionServicer(sessions, Forks(lanes, dispatcher), pages, history, hub, inspection)
    attachments, redactor = Attachments(lanes, dispatcher), EventRedactor(db, ring)
    internal = TurnServicer(lanes, sessions, attachments, hub, verifier, redactor)
    try:
        yield Ledger(db, ring, hub, lanes, dispatcher, public, internal)
    finally:
        await dispatcher.close()
        hub.close()
        await db.close()


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what another task does without telling."""
    for _ in range(1000):
        if await condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


async def reason_of(awaitable: Any) -> str:
    """The reason for which a call fails."""
    from foundation.errors import name_of

    try:
        await awaitable
    except Failure as failure:
        return name_of(failure.reason)
    raise AssertionError("the call did not fail")
