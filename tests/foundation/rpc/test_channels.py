"""Calls behave the same in process and over sockets: failures, credentials, deadlines, copies."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from counterfoil.ledger.v1 import session_pb2, session_pb2_grpc, turn_pb2, turn_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as pb

from foundation import errors
from foundation.errors import Failure
from foundation.rpc.admission import Admission
from foundation.rpc.context import CallContext, current, serving, workspace
from foundation.rpc.host import Host
from foundation.rpc.remote import RemoteChannel
from foundation.rpc.status import TRANSPORT

SERVICE_KEY = "service-credential-of-this-test-deployment"
WORKSPACE_KEY = "cf-key-one"


@dataclass
class Someone:
    workspace_id: str = "wrkspc_1"
    api_key_id: str = "apikey_1"


async def authenticate(key: str) -> Someone | None:
    return Someone() if key == WORKSPACE_KEY else None


# Generated servicers are abstract to the type checker only; these serve a few methods each.
SessionsBase: Any = session_pb2_grpc.SessionServiceServicer
TurnsBase: Any = turn_pb2_grpc.TurnServiceServicer


class Sessions(SessionsBase):
    """Answers with what the pipeline knows of the call."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.seen: session_pb2.GetSessionRequest | None = None

    async def GetSession(self, request: session_pb2.GetSessionRequest, context: Any) -> Any:
        self.seen = request
        self.arrived.set()
        match request.session_id:
            case "missing":
                raise errors.not_found("session", request.session_id)
            case "broken":
                raise RuntimeError("a secret that must not travel")
            case "slow":
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise
            case _:
                pass
        title = f"{workspace()} {current().request_id}"
        return session_pb2.GetSessionResponse(
            session=session_pb2.Session(id=request.session_id, title=title)
        )

    async def StreamEvents(self, request: session_pb2.StreamEventsRequest, context: Any) -> Any:
        for position in range(3):
            assert workspace() == "wrkspc_1"
            yield session_pb2.StreamEventsResponse(position_through=position)
        if request.session_id == "breaks":
            raise errors.wrong_state("it broke")
        if request.session_id == "endless":
            try:
                await asyncio.sleep(30)
            except (asyncio.CancelledError, GeneratorExit):
                self.cancelled.set()
                raise


class Turns(TurnsBase):
    """Echoes an attach stream."""

    async def ReleaseTurn(self, request: turn_pb2.ReleaseTurnRequest, context: Any) -> Any:
        return turn_pb2.ReleaseTurnResponse()

    async def Attach(self, request_iterator: Any, context: Any) -> Any:
        async for request in request_iterator:
            name = request.hello.runner_name
            yield turn_pb2.AttachResponse(attached=turn_pb2.Attached(stream_id=name))


@dataclass
class Wired:
    servicer: Sessions
    public: session_pb2_grpc.SessionServiceStub
    internal: turn_pb2_grpc.TurnServiceStub
    with_key: Any


@pytest.fixture(params=["local", "remote"])
async def wired(request: pytest.FixtureRequest) -> AsyncIterator[Wired]:
    host = Host(Admission(SERVICE_KEY, authenticate))
    servicer = Sessions()
    host.register(session_pb2_grpc.add_SessionServiceServicer_to_server, servicer)
    host.register(turn_pb2_grpc.add_TurnServiceServicer_to_server, Turns())
    async with _channels(host, request.param) as channel:
        yield Wired(
            servicer,
            session_pb2_grpc.SessionServiceStub(channel(WORKSPACE_KEY)),
            turn_pb2_grpc.TurnServiceStub(channel(SERVICE_KEY)),
            channel,
        )
    await host.stop()


@asynccontextmanager
async def _channels(host: Host, mode: str) -> AsyncIterator[Any]:
    if mode == "local":
        yield host.channel
        return
    port = await host.listen("127.0.0.1:0")
    remotes: list[RemoteChannel] = []

    def channel(key: str) -> grpc.aio.Channel:
        remotes.append(RemoteChannel(f"127.0.0.1:{port}", key))
        return remotes[-1].as_channel()

    yield channel
    for remote in remotes:
        await remote.close()


def get(session_id: str) -> session_pb2.GetSessionRequest:
    return session_pb2.GetSessionRequest(session_id=session_id)


async def reason_of(call: Any) -> "pb.ErrorReason.ValueType":
    with pytest.raises(Failure) as caught:
        await call
    return caught.value.reason


async def test_a_public_call_knows_its_workspace_and_request(wired: Wired) -> None:
    metadata = (("x-request-id", "req_given"),)
    answer = await wired.public.GetSession(get("s"), metadata=metadata)
    assert answer.session.title == "wrkspc_1 req_given"


async def test_a_failure_keeps_reason_message_and_path(wired: Wired) -> None:
    with pytest.raises(Failure) as caught:
        await wired.public.GetSession(get("missing"))
    assert caught.value.reason == pb.ERROR_REASON_NOT_FOUND
    assert caught.value.message == "session missing was not found"


async def test_an_unexpected_error_says_nothing(wired: Wired) -> None:
    with pytest.raises(Failure) as caught:
        await wired.public.GetSession(get("broken"))
    assert caught.value.reason == pb.ERROR_REASON_INTERNAL
    assert "secret" not in str(caught.value)


async def test_limits_of_the_contract_are_checked_before_the_method(wired: Wired) -> None:
    with pytest.raises(Failure) as caught:
        await wired.public.GetSession(get(""))
    assert caught.value.reason == pb.ERROR_REASON_INVALID_FIELD
    assert caught.value.path == "session_id"
    assert wired.servicer.seen is None


async def test_an_expired_deadline_cancels_the_method(wired: Wired) -> None:
    call = wired.public.GetSession(get("slow"), timeout=0.2)
    assert await reason_of(call) == pb.ERROR_REASON_DEADLINE_EXCEEDED
    await asyncio.wait_for(wired.servicer.cancelled.wait(), 5)


async def test_the_servicer_cannot_change_its_callers_message(wired: Wired) -> None:
    request = get("s")
    await wired.public.GetSession(request)
    assert wired.servicer.seen is not None
    wired.servicer.seen.session_id = "changed"
    assert request.session_id == "s"


async def test_the_servicers_context_is_its_own(wired: Wired) -> None:
    with serving(CallContext("req_caller", "wrkspc_caller")):
        answer = await wired.public.GetSession(get("s"))
        assert answer.session.title == "wrkspc_1 req_caller"
        assert workspace() == "wrkspc_caller"
    assert current().request_id == ""


async def test_a_call_without_a_request_id_gets_one_that_stays(wired: Wired) -> None:
    one, two = [(await wired.public.GetSession(get("s"))).session.title for _ in range(2)]
    assert one.startswith("wrkspc_1 req_")
    assert two.startswith("wrkspc_1 req_")
    assert one != two
    call = CallContext(None)
    assert call.request_id == call.request_id


async def test_cancelling_the_caller_cancels_the_method(wired: Wired) -> None:
    task = asyncio.ensure_future(wired.public.GetSession(get("slow")))
    await asyncio.wait_for(wired.servicer.arrived.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(wired.servicer.cancelled.wait(), 5)


async def test_a_call_within_a_call_has_no_more_time_than_it(wired: Wired) -> None:
    deadline = time.monotonic() + 0.2
    with serving(CallContext("req_caller", deadline=deadline)):
        call = wired.public.GetSession(get("slow"), timeout=30)
        assert await reason_of(call) == pb.ERROR_REASON_DEADLINE_EXCEEDED
    await asyncio.wait_for(wired.servicer.cancelled.wait(), 5)


async def test_a_stream_delivers_and_ends(wired: Wired) -> None:
    request = session_pb2.StreamEventsRequest(session_id="s")
    assert [b.position_through async for b in wired.public.StreamEvents(request)] == [0, 1, 2]


async def test_a_stream_delivers_before_its_failure(wired: Wired) -> None:
    responses = aiter(
        wired.public.StreamEvents(session_pb2.StreamEventsRequest(session_id="breaks"))
    )
    assert [(await anext(responses)).position_through for _ in range(3)] == [0, 1, 2]
    with pytest.raises(Failure) as caught:
        await anext(responses)
    assert caught.value.reason == pb.ERROR_REASON_WRONG_STATE


async def test_cancelling_a_stream_reaches_the_servicer(wired: Wired) -> None:
    request = session_pb2.StreamEventsRequest(session_id="endless")
    stream = wired.public.StreamEvents(request)
    async for batch in stream:
        if batch.position_through == 2:
            break
    stream.cancel()
    await asyncio.wait_for(wired.servicer.cancelled.wait(), 5)


async def test_a_bidirectional_stream_answers_each_request(wired: Wired) -> None:
    queue: asyncio.Queue[turn_pb2.AttachRequest] = asyncio.Queue()

    async def requests() -> AsyncIterator[turn_pb2.AttachRequest]:
        while True:
            yield await queue.get()

    stream = wired.internal.Attach(requests())
    responses = aiter(stream)
    for name in ("a", "b"):
        hello = turn_pb2.AttachHello(runner_name=name, capacity=1)
        queue.put_nowait(turn_pb2.AttachRequest(hello=hello))
        assert (await anext(responses)).attached.stream_id == name
    stream.cancel()


@pytest.mark.parametrize(
    ("key", "public", "internal"),
    [
        ("", pb.ERROR_REASON_UNAUTHENTICATED, pb.ERROR_REASON_UNAUTHENTICATED),
        ("nobody", pb.ERROR_REASON_UNAUTHENTICATED, pb.ERROR_REASON_UNAUTHENTICATED),
        (WORKSPACE_KEY, None, pb.ERROR_REASON_PERMISSION_DENIED),
        (SERVICE_KEY, pb.ERROR_REASON_UNAUTHENTICATED, None),
    ],
)
async def test_credentials_open_one_side_only(
    wired: Wired, key: str, public: Any, internal: Any
) -> None:
    channel = wired.with_key(key)
    sessions = session_pb2_grpc.SessionServiceStub(channel)
    turns = turn_pb2_grpc.TurnServiceStub(channel)
    calls = (
        (sessions.GetSession(get("s")), public),
        (turns.ReleaseTurn(turn_pb2.ReleaseTurnRequest(turn_id="t")), internal),
    )
    for call, expected in calls:
        if expected is not None:
            assert await reason_of(call) == expected
        else:
            await call


async def test_a_failure_of_the_transport_is_told_apart() -> None:
    """Nobody knows what happened: idempotent calls are repeated, an Execute never is."""

    class Raises(grpc.GenericRpcHandler):
        """A server that is not ours, or was broken off outside our code."""

        def service(self, handler_call_details: Any) -> Any:
            async def raises(request: Any, context: Any) -> Any:
                raise ValueError("not ours")

            return grpc.unary_unary_rpc_method_handler(raises)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Raises(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = RemoteChannel(f"127.0.0.1:{port}", WORKSPACE_KEY)
    with pytest.raises(Failure) as caught:
        await session_pb2_grpc.SessionServiceStub(channel.as_channel()).GetSession(get("s"))
    assert caught.value.reason == pb.ERROR_REASON_INTERNAL
    assert caught.value.metadata == {TRANSPORT: "unknown"}
    await channel.close()
    await server.stop(None)


async def test_what_the_other_side_raised_is_not_the_transports(wired: Wired) -> None:
    with pytest.raises(Failure) as caught:
        await wired.public.GetSession(get("broken"))
    assert TRANSPORT not in caught.value.metadata


async def test_a_peer_that_is_stopped_is_noticed() -> None:
    """A connection that only looks open ends within a lease's time or two: here the peer is a
    process that is stopped while it reads."""
    host = Host(Admission(SERVICE_KEY, authenticate))
    servicer = Sessions()
    host.register(session_pb2_grpc.add_SessionServiceServicer_to_server, servicer)
    port = await host.listen("127.0.0.1:0")
    call = (
        "import asyncio, os, signal\n"
        "from counterfoil.ledger.v1 import session_pb2, session_pb2_grpc\n"
        "from foundation.rpc.remote import RemoteChannel\n"
        "async def main():\n"
        f"    channel = RemoteChannel('127.0.0.1:{port}', '{WORKSPACE_KEY}').as_channel()\n"
        "    stub = session_pb2_grpc.SessionServiceStub(channel)\n"
        "    request = session_pb2.StreamEventsRequest(session_id='endless')\n"
        "    async for batch in stub.StreamEvents(request):\n"
        "        if batch.position_through == 2:\n"
        "            os.kill(os.getpid(), signal.SIGSTOP)\n"
        "asyncio.run(main())\n"
    )
    peer = await asyncio.create_subprocess_exec(sys.executable, "-c", call)
    try:
        await asyncio.wait_for(servicer.cancelled.wait(), 25)
    finally:
        peer.kill()
        await peer.wait()
        await host.stop()
