"""An answer is one write, heads wait for what follows them, and HTTP/1.1 is kept."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from gateway.answers import Headers
from gateway.protocol import Protocol

ASK = b"GET /a%2Fb?c=d HTTP/1.1\r\nhost: x\r\n\r\n"

App = Callable[[Any, Any, Any], Awaitable[None]]


class Transport(asyncio.Transport):
    """Remembers what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.over = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data:
            self.writes.append(bytes(data))

    def close(self) -> None:
        self.over.set()

    @property
    def closed(self) -> bool:
        return self.over.is_set()

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def connected(app: App, state: ServerState, seconds: float = 60) -> tuple[Protocol, Transport]:
    """A connection, which may idle for so long."""
    config = uvicorn.Config(cast(Any, app), http=Protocol, ws="none", proxy_headers=False)
    config.load()
    protocol = Protocol(config, state, {})
    protocol.timeout_keep_alive = cast(Any, seconds)
    transport = Transport()
    protocol.connection_made(transport)
    return protocol, transport


async def served(app: App, *pieces: bytes) -> Transport:
    """What one connection answers to these pieces."""
    state = ServerState()
    protocol, transport = connected(app, state)
    for piece in pieces:
        protocol.data_received(piece)
        await asyncio.sleep(0)
    await asyncio.gather(*state.tasks)
    await asyncio.sleep(0)
    await asyncio.gather(*state.tasks)
    return transport


def answering(status: int, *bodies: bytes, headers: Headers | None = None) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers or []})
        for at, body in enumerate(bodies, 1):
            more = at < len(bodies)
            await send({"type": "http.response.body", "body": body, "more_body": more})

    return app


def sized(size: int) -> Headers:
    return [(b"content-length", str(size).encode())]


async def test_head_and_body_are_one_write() -> None:
    transport = await served(answering(200, b"hello", headers=sized(5)), ASK)
    assert transport.writes == [b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"]
    assert not transport.closed


async def test_an_empty_piece_sends_the_head_of_a_stream_at_once() -> None:
    transport = await served(answering(200, b"", b"one", b"two", b""), ASK)
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    assert transport.writes == [head, b"3\r\none\r\n", b"3\r\ntwo\r\n", b"0\r\n\r\n"]


async def test_head_gets_the_headers_of_get_without_its_body() -> None:
    transport = await served(answering(200, b"", headers=sized(5)), ASK.replace(b"GET", b"HEAD"))
    assert transport.writes == [b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"]


async def test_no_content_has_neither_length_nor_chunks() -> None:
    transport = await served(answering(204, b""), ASK)
    assert transport.writes == [b"HTTP/1.1 204 No Content\r\n\r\n"]


async def test_requests_behind_each_other_are_answered_in_order() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        path = scope["raw_path"]
        await asyncio.sleep(0.01 if path == b"/first" else 0)
        await answering(200, path, headers=sized(len(path)))(scope, receive, send)

    both = b"".join(ASK.replace(b"/a%2Fb?c=d", path) for path in (b"/first", b"/second"))
    transport = await served(app, both)
    assert [write.rpartition(b"\r\n")[2] for write in transport.writes] == [b"/first", b"/second"]


async def test_a_body_that_is_expected_to_be_asked_for_is_asked_for() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        while message["more_body"]:
            message = await receive()
        await answering(200, b"", headers=sized(0))(scope, receive, send)

    head = b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    transport = await served(app, head, b"{}")
    assert transport.writes[0] == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert transport.writes[1].startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    "ask",
    [ASK.replace(b"/1.1", b"/1.0"), ASK.replace(b"host: x", b"host: x\r\nconnection: close")],
)
async def test_a_client_that_keeps_no_connection_is_told_and_left(ask: bytes) -> None:
    transport = await served(answering(200, b"", headers=sized(0)), ask)
    assert b"\r\nconnection: close\r\n" in transport.writes[0]
    assert transport.closed


async def test_a_header_cannot_begin_another_one() -> None:
    transport = await served(answering(200, b"", headers=[(b"allow", b"a\r\nb: c")]), ASK)
    assert b"b: c" not in b"".join(transport.writes)
    assert transport.writes[0].startswith(b"HTTP/1.1 500 ")


@pytest.mark.parametrize("body", [b"four", b"sixsix"])
async def test_a_body_of_another_length_breaks_the_connection(body: bytes) -> None:
    transport = await served(answering(200, body, headers=sized(5)), ASK)
    assert transport.writes == []
    assert transport.closed


async def test_the_scope_has_the_path_decoded_and_as_it_came() -> None:
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        await answering(200, b"", headers=sized(0))(scope, receive, send)

    await served(app, ASK)
    found = {name: scopes[0][name] for name in ("method", "path", "raw_path", "query_string")}
    assert found == {
        "method": "GET",
        "path": "/a/b",
        "raw_path": b"/a%2Fb",
        "query_string": b"c=d",
    }


async def test_a_connection_that_idles_is_closed_and_one_that_asks_is_kept() -> None:
    state = ServerState()
    protocol, transport = connected(answering(200, b"", headers=sized(0)), state, 0.2)
    for _ in range(3):
        protocol.data_received(ASK)
        await asyncio.gather(*state.tasks)
        await asyncio.sleep(0.12)
        assert not transport.closed
    assert len(transport.writes) == 3
    async with asyncio.timeout(5):
        await transport.over.wait()


async def test_a_request_that_runs_is_no_idling() -> None:
    release = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["raw_path"] == b"/slow":
            await release.wait()
        await answering(200, b"", headers=sized(0))(scope, receive, send)

    state = ServerState()
    protocol, transport = connected(app, state, 0.05)
    protocol.data_received(ASK)
    await asyncio.gather(*state.tasks)
    protocol.data_received(ASK.replace(b"/a%2Fb?c=d", b"/slow"))
    await asyncio.sleep(0.2)
    assert not transport.closed
    release.set()
    await asyncio.gather(*state.tasks)
    assert len(transport.writes) == 2


async def test_a_lost_connection_leaves_no_timer() -> None:
    state = ServerState()
    protocol, _ = connected(answering(200, b"", headers=sized(0)), state)
    protocol.data_received(ASK)
    await asyncio.gather(*state.tasks)
    timer = protocol.timeout_keep_alive_task
    assert timer is not None
    protocol.connection_lost(None)
    assert timer.cancelled()
