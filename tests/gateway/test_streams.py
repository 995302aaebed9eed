"""A stream is active when its headers arrive, delivers everything in order, and ends cleanly."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
import pytest
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.rpc.remote import RemoteChannel
from gateway.app import create_app
from gateway.server import Server, serve
from tests.gateway.support import (
    API_KEY,
    SESSION,
    Behaviour,
    all_fine,
    app_of,
    failing,
    frame,
    host_of,
)

PATH = f"/v1/sessions/{SESSION}/events/stream"
SECONDS = 5


@dataclass
class Wire:
    """A client over a bare socket: what it reads is what was sent, chunk by chunk."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: str = ""

    async def ask(self, path: str = PATH, **headers: str) -> "Wire":
        fields = {"host": "x", "authorization": f"Bearer {API_KEY}", **headers}
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        self.writer.write(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        self.head = (await self._until(b"\r\n\r\n")).decode().lower()
        return self

    async def chunk(self) -> bytes:
        """The next send; empty at the end."""
        size = int((await self._until(b"\r\n")).strip(), 16)
        async with asyncio.timeout(SECONDS):
            return (await self.reader.readexactly(size + 2))[:-2]

    async def _until(self, mark: bytes) -> bytes:
        async with asyncio.timeout(SECONDS):
            return await self.reader.readuntil(mark)


@asynccontextmanager
async def wire_to(server: Server) -> AsyncGenerator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.fixture(params=["local", "remote"])
async def anywhere(request: pytest.FixtureRequest, behaviour: Behaviour) -> AsyncIterator[Server]:
    """A server whose ledger is in process, and one whose ledger is behind a socket."""
    host = host_of(behaviour)
    remote = None
    if request.param == "remote":
        remote = RemoteChannel(f"127.0.0.1:{await host.listen('127.0.0.1:0')}")
    channel = remote.as_channel() if remote else host.channel()
    server = await serve(create_app(lambda _: channel, readiness=all_fine), "127.0.0.1", 0)
    yield server
    await server.stop()
    if remote is not None:
        await remote.close()
    await host.stop()


async def waiting(event: asyncio.Event) -> None:
    async with asyncio.timeout(SECONDS):
        await event.wait()


async def test_headers_come_with_the_subscription_and_frames_behind_them(
    anywhere: Server, behaviour: Behaviour
) -> None:
    async with wire_to(anywhere) as wire:
        await wire.ask()
        assert wire.head.startswith("http/1.1 200")
        assert "content-type: text/event-stream; charset=utf-8\r\n" in wire.head
        assert "cache-control: no-cache\r\n" in wire.head
        assert "x-accel-buffering: no\r\n" in wire.head
        assert "request-id: req_" in wire.head
        behaviour.send(frame(1, "user.message"), frame(2, "session.status_running"))
        batch = await wire.chunk()
        assert batch.count(b"event: ") == 2
        assert f"id: {SESSION}:2\n".encode() in batch
        behaviour.send(frame(3, "session.deleted"), end=True)
        assert f"id: {SESSION}:3\n".encode() in await wire.chunk()
        assert await wire.chunk() == b""


async def test_no_header_before_the_subscription(server: Server, behaviour: Behaviour) -> None:
    behaviour.release = asyncio.Event()
    async with wire_to(server) as wire:
        asking = asyncio.ensure_future(wire.ask())
        await waiting(behaviour.subscribed)
        assert not asking.done()
        behaviour.release.set()
        await asking
        assert wire.head.startswith("http/1.1 200")


@pytest.mark.parametrize("path", [PATH, f"/v1/sessions/{SESSION}/stream"])
async def test_a_failure_before_the_subscription_is_plain_json(
    anywhere: Server, behaviour: Behaviour, path: str
) -> None:
    behaviour.failure = failing(reasons.ERROR_REASON_NOT_FOUND, "session x was not found")
    async with wire_to(anywhere) as wire:
        await wire.ask(path)
        assert wire.head.startswith("http/1.1 404")
        assert "content-type: application/json\r\n" in wire.head


async def test_a_refused_parameter_is_plain_json(http: httpx2.AsyncClient) -> None:
    response = await http.get(f"{PATH}?event_deltas[]=agent.message&event_deltas[]=bogus")
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("event_deltas")


async def test_a_failure_in_the_middle_is_an_error_event_and_the_end(
    anywhere: Server, behaviour: Behaviour
) -> None:
    async with wire_to(anywhere) as wire:
        await wire.ask()
        behaviour.stream.put_nowait(failing(reasons.ERROR_REASON_UNAVAILABLE, "10.0.0.7"))
        name, data, *_ = (await wire.chunk()).split(b"\n")
        assert name == b"event: error"
        body = json.loads(data.removeprefix(b"data: "))
        assert body["error"]["type"] == "api_error"
        assert f"request-id: {body['request_id']}" in wire.head
        assert b"10.0.0.7" not in data
        assert await wire.chunk() == b""


async def test_a_session_that_is_over_gets_one_ping_and_the_end(
    server: Server, behaviour: Behaviour
) -> None:
    behaviour.send(end=True)
    async with wire_to(server) as wire:
        await wire.ask()
        assert wire.head.startswith("http/1.1 200")
        assert await wire.chunk() == b'event: ping\ndata: {"type":"ping"}\n\n'
        assert await wire.chunk() == b""


async def test_a_client_that_leaves_ends_the_call_at_once(
    anywhere: Server, behaviour: Behaviour
) -> None:
    async with wire_to(anywhere) as wire:
        await wire.ask()
        assert not behaviour.cancelled.is_set()
    await waiting(behaviour.cancelled)


async def test_a_client_that_leaves_before_the_headers_ends_the_call(
    server: Server, behaviour: Behaviour
) -> None:
    never = asyncio.Event()
    left = asyncio.Event()

    class Never(asyncio.Event):
        async def wait(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
            try:
                return await never.wait()
            finally:
                left.set()

    behaviour.release = Never()
    async with wire_to(server) as wire:
        asking = asyncio.ensure_future(wire.ask())
        await waiting(behaviour.subscribed)
        asking.cancel()
    await waiting(left)


async def test_silence_is_broken_by_pings_and_frames_postpone_them(behaviour: Behaviour) -> None:
    server = await serve(app_of(host_of(behaviour), ping_seconds=0.05), "127.0.0.1", 0)
    try:
        async with wire_to(server) as wire:
            await wire.ask()
            for _ in range(2):
                assert (await wire.chunk()).startswith(b"event: ping\n")
            behaviour.send(frame(1, "user.message"))
            assert (await wire.chunk()).startswith(b"event: user.message\n")
            assert (await wire.chunk()).startswith(b"event: ping\n")
    finally:
        await server.stop()


async def test_a_last_event_id_continues_behind_it(server: Server, behaviour: Behaviour) -> None:
    async with wire_to(server) as wire:
        await wire.ask(f"{PATH}?position_after=1", Last_Event_ID=f"{SESSION}:41")
    async with wire_to(server) as wire:
        await wire.ask(f"{PATH}?position_after=1")
    async with wire_to(server) as wire:
        await wire.ask(PATH, Last_Event_ID="")
    first, second, third = behaviour.calls
    assert first.position_after == 41
    assert second.position_after == 1
    assert not third.HasField("position_after")


@pytest.mark.parametrize("value", ["sesn_other:3", "3", f"{SESSION}:x"])
async def test_a_last_event_id_of_elsewhere_is_400(
    http: httpx2.AsyncClient, behaviour: Behaviour, value: str
) -> None:
    response = await http.get(PATH, headers={"last-event-id": value})
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("Last-Event-ID: ")
    assert behaviour.calls == []


async def test_clients_of_the_first_generation_get_one_name_for_everything(
    server: Server, behaviour: Behaviour
) -> None:
    behaviour.send(frame(1, "user.message"), end=True)
    async with wire_to(server) as wire:
        await wire.ask(x_stainless_package_version="0.94.0")
        assert (await wire.chunk()).startswith(b"event: message\n")


async def test_head_subscribes_and_leaves(http: httpx2.AsyncClient, behaviour: Behaviour) -> None:
    response = await http.head(PATH)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"].startswith("text/event-stream")
    await waiting(behaviour.cancelled)


async def test_a_slow_reader_gets_every_frame_whole(server: Server, behaviour: Behaviour) -> None:
    text = json.dumps({"type": "user.message", "text": "é" * 100_000})
    async with wire_to(server) as wire:
        await wire.ask()
        for position in range(1, 51):
            behaviour.send(frame(position, "user.message", text))
        behaviour.send(end=True)
        await waiting(behaviour.subscribed)
        received = b""
        while chunk := await wire.chunk():
            received += chunk
    found = [part for part in received.split(b"\n\n") if part]
    assert len(found) == 50
    for position, part in enumerate(found, start=1):
        assert f"id: {SESSION}:{position}\n".encode() in part
        assert json.loads(part.split(b"data: ")[1]) == json.loads(text)


async def test_a_stopping_server_ends_its_streams_cleanly_within_two_seconds(
    behaviour: Behaviour,
) -> None:
    server = await serve(app_of(host_of(behaviour)), "127.0.0.1", 0)
    async with wire_to(server) as wire, wire_to(server) as idle:
        await wire.ask()
        async with asyncio.timeout(2):
            await server.stop()
        assert await wire.chunk() == b""
        assert behaviour.cancelled.is_set()
        assert await idle.reader.read() == b""
