"""Whatever a peer does to a connection, the failure says it, and no request is sent twice."""

import asyncio
import gzip
import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from services.runner.adapter import transport
from services.runner.adapter.failures import ProviderFailure
from tests.services.runner.adapter.peers import (
    BODY,
    Connection,
    adapter,
    answering,
    ask,
    failure,
    peer,
    told,
)
from tests.services.runner.adapter.support import BEGIN, END
from tests.services.runner.adapter.test_requests_are_exact import JSON, SSE, events, http

LARGE = b'{"messages":["%s"]}' % (b"x" * 16 * 1024 * 1024)
WHOLE = b'{"content":[{"type":"odd"}],"stop_reason":null}'


STREAM = events(BEGIN, END)


async def test_a_refused_connection_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert told(await failure(f"http://127.0.0.1:{port}")) == ("unreachable", True)


async def test_a_connection_that_does_not_come_is_unreachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "_CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        began = time.monotonic()
        found = await failure(f"http://127.0.0.1:{address[1]}")
        for one in waiting:
            one.close()
    assert told(found) == ("unreachable", True)
    assert time.monotonic() - began >= 0.3


async def test_an_unknown_host_is_unreachable() -> None:
    assert told(await failure("http://provider.invalid")) == ("unreachable", True)


@pytest.mark.parametrize("how", ["end", "reset"])
async def test_a_fresh_connection_that_ends_before_the_headers(how: str) -> None:
    async def act(connection: Connection) -> None:
        await connection.request()
        if how == "reset":
            connection.reset()

    async with peer(act) as made:
        assert told(await failure(made.url)) == ("unreachable", True)
    assert made.requests == 1


@pytest.mark.parametrize("how", ["end", "reset"])
async def test_a_used_connection_that_ends_before_the_headers_gets_no_second_request(
    how: str,
) -> None:
    async def act(connection: Connection) -> None:
        await connection.request()
        await connection.send(http(STREAM, SSE))
        await connection.request()
        if how == "reset":
            connection.reset()

    async with peer(act) as made, adapter(made.url) as asking:
        await ask(asking)
        with pytest.raises(ProviderFailure) as caught:
            await ask(asking)
    assert told(caught.value) == ("unreachable", True)
    assert (made.connections, made.requests) == (1, 2)


class Thread:
    """A peer that acts while our event loop stands still: one answer for each connection."""

    def __init__(self, then: Callable[[socket.socket], None]) -> None:
        self._then = then
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0
        self.done = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with self._listening:
            for _ in range(2):
                taken, _ = self._listening.accept()
                self.connections += 1
                with taken:
                    seen = b""
                    while not seen.endswith(BODY):
                        seen += taken.recv(65536)
                    taken.sendall(http(STREAM, SSE))
                    taken.settimeout(5)
                    self._then(taken)
                    if self.connections == 1:
                        self.done.set()
                        select.select([taken], [], [], 5)


def _stand_still(thread: Thread) -> None:
    """Meanwhile the event loop reads nothing of what comes."""
    assert thread.done.wait(5)
    time.sleep(0.05)


def _ends(taken: socket.socket) -> None:
    time.sleep(0.05)
    taken.shutdown(socket.SHUT_WR)


def _speaks(taken: socket.socket) -> None:
    time.sleep(0.05)
    taken.sendall(http(b"{}", JSON, status="500 Unasked"))


@pytest.mark.parametrize("then", [_ends, _speaks])
async def test_a_kept_connection_that_ended_or_spoke_gets_no_request(
    then: Callable[[socket.socket], None],
) -> None:
    thread = Thread(then)
    async with adapter(thread.url) as asking:
        await ask(asking)
        _stand_still(thread)
        assert (await ask(asking)).blocks == ()
    assert thread.connections == 2


@pytest.mark.parametrize("pause", [0, 0.02])
async def test_what_came_unasked_is_nobody_s_answer(pause: float) -> None:
    async def act(connection: Connection) -> None:
        await connection.request()
        await connection.send(http(STREAM, SSE))
        await asyncio.sleep(pause)
        await connection.send(http(b"{}", JSON, status="500 Unasked"))
        await connection.gone()

    async with peer(act) as made, adapter(made.url) as asking:
        for _ in range(3):
            assert (await ask(asking)).blocks == ()
            await asyncio.sleep(0.1)
    assert made.connections == 3


CHUNKED = b"HTTP/1.1 200 OK\r\n%s\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("how", ["end", "reset"])
@pytest.mark.parametrize(
    "response",
    [
        http(STREAM, SSE)[:-20],
        http(WHOLE, JSON)[:-20],
        CHUNKED % SSE.encode() + b"6\r\ndata: \r\n",
        CHUNKED % JSON.encode() + b"6\r\n{'a': \r\n",
        b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % SSE.encode() + STREAM[:-20],
    ],
)
async def test_an_answer_that_breaks_off_is_truncated(response: bytes, how: str) -> None:
    async def act(connection: Connection) -> None:
        await connection.request()
        await connection.send(response)
        if how == "reset":
            await asyncio.sleep(0.05)
            connection.reset()

    async with peer(act) as made:
        assert told(await failure(made.url)) == ("truncated", True)
    assert made.requests == 1


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 200 OK\r\n", http(STREAM, SSE)[:-20], http(WHOLE, JSON)[:-20]]
)
async def test_silence_is_a_timeout(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(connection: Connection) -> None:
        await connection.request()
        await connection.send(sent)
        await connection.gone()

    async with peer(act) as made:
        began = time.monotonic()
        found = await failure(made.url, idle_seconds=0.3)
        assert 0.3 <= time.monotonic() - began < 3
    assert told(found) == ("timeout", True)
    assert found.message == "The model provider sent nothing for 0.3 seconds."


async def test_a_peer_that_takes_no_request_is_silent() -> None:
    async def act(connection: Connection) -> None:
        await connection.head()
        await asyncio.sleep(1)

    async with peer(act) as made:
        assert told(await failure(made.url, LARGE, idle_seconds=0.3)) == ("timeout", True)


@pytest.mark.full
async def test_a_peer_that_takes_a_large_request_slowly_is_not_silent() -> None:
    async def act(connection: Connection) -> None:
        left = await connection.head()
        while left:
            left -= len(await connection.reader.readexactly(min(left, 1024 * 1024)))
            await asyncio.sleep(0.08)
        await connection.send(http(STREAM, SSE))

    async with peer(act) as made, adapter(made.url, idle_seconds=2) as asking:
        began = time.monotonic()
        assert (await ask(asking, LARGE * 2)).blocks == ()
    assert time.monotonic() - began > 2


async def test_an_early_answer_to_a_large_request_counts() -> None:
    async def act(connection: Connection) -> None:
        await connection.head()
        await connection.send(http(b"{}", JSON, status="413 Too Large"))
        await asyncio.sleep(0.2)
        connection.reset()

    async with peer(act) as made:
        assert told(await failure(made.url, LARGE)) == ("overflow", False)


async def test_cancelling_closes_the_connection_while_the_request_is_sent() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def act(connection: Connection) -> None:
        await connection.head()
        begun.set()
        await connection.gone()
        ended.set()

    async with peer(act) as made, adapter(made.url) as asking:
        call = asyncio.create_task(ask(asking, LARGE))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(ended.wait(), 5)


@pytest.mark.parametrize("coding", ["gzip", "GZIP"])
async def test_a_packed_answer_is_unpacked(coding: str) -> None:
    packed = http(gzip.compress(STREAM), SSE, f"content-encoding: {coding}")
    async with answering(packed) as made, adapter(made.url) as asking:
        assert (await ask(asking)).blocks == ()


@pytest.mark.parametrize(
    "response",
    [
        http(b"no gzip at all", SSE, "content-encoding: gzip"),
        http(gzip.compress(WHOLE), JSON),
        http(WHOLE, JSON, "content-encoding: deflate"),
        http(b"\x00\x01\x02", JSON, "content-encoding: unheard-of"),
        b"SMTP ready\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        http(b"event: message_start\ndata: \xff\n\n", SSE),
        http(b'{"content":["\xff"]}', JSON),
    ],
)
async def test_what_is_not_what_it_says_is_a_bad_answer(response: bytes) -> None:
    async with answering(response) as made:
        assert told(await failure(made.url)) == ("bad_answer", True)


async def test_a_packed_answer_is_bounded_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "ANSWER_BYTES_MAX", 1024 * 1024)
    packed = gzip.compress(b" " * 8 * 1024 * 1024)
    async with answering(http(packed, JSON, "content-encoding: gzip")) as made:
        assert told(await failure(made.url)) == ("bad_answer", False)


async def test_bytes_that_are_no_text_in_headers_do_no_harm() -> None:
    head = f"HTTP/1.1 200 OK\r\n{SSE}\r\ncontent-length: {len(STREAM)}\r\n".encode()
    response = head + b"request-id: a\xffb\r\n\r\n" + STREAM
    async with answering(response) as made, adapter(made.url) as asking:
        assert (await ask(asking)).provider_request_id == "a?b"


async def test_an_interim_answer_is_no_answer() -> None:
    response = b"HTTP/1.1 103 Early Hints\r\n\r\n" + http(STREAM, SSE)
    async with answering(response) as made, adapter(made.url) as asking:
        assert (await ask(asking)).blocks == ()


OVERLOADED = http(b'{"error":{"type":"overloaded_error"}}', JSON, status="529 Overloaded")


@pytest.mark.parametrize("then", ["end", "reset", "silence"])
async def test_a_status_decides_though_its_body_breaks_off(then: str) -> None:
    async def act(connection: Connection) -> None:
        await connection.request()
        await connection.send(OVERLOADED[:-10])
        await asyncio.sleep(0.05)
        if then == "reset":
            connection.reset()
        if then == "silence":
            await connection.gone()

    async with peer(act) as made:
        assert told(await failure(made.url, idle_seconds=0.3)) == ("overloaded", True)


async def test_an_endless_refusal_is_read_as_far_as_it_may_matter() -> None:
    async def act(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 400 Bad\r\nrequest-id: req_7\r\n\r\nprompt is too long ")
        with suppress(ConnectionError):
            while True:
                await connection.send(b"x" * 65536)

    async with peer(act) as made:
        found = await failure(made.url)
    assert told(found) == ("overflow", False)
    assert found.provider_request_id == "req_7"


async def test_logs_hold_nothing_of_requests_and_answers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    async with answering(http(b'{"secret-answer":1}', JSON)) as made:
        found = await failure(made.url, b'{"secret-question":1}')
    assert found.kind == "bad_answer"
    assert "secret" not in caplog.text
    assert "the-key" not in caplog.text
