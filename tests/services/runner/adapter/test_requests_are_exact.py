"""The request is the given bytes, and only configuration decides where and as whom it goes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from services.runner.adapter import transport
from services.runner.adapter.failures import ProviderFailure
from services.runner.adapter.messages import MessagesAdapter
from tests.services.runner.adapter.support import BEGIN, END, ignore

ODD = b'{ "z": 1.10, "a":[1e400],\n"text":"\\u0000 \xf0\x9f\x98\x80","messages":[]}'


@dataclass
class Wire:
    """A socket that keeps every request and answers each with the same bytes."""

    response: bytes
    url: str = ""
    heads: list[str] = field(default_factory=list[str])
    bodies: list[bytes] = field(default_factory=list[bytes])
    connections: int = 0

    open: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.append(asyncio.create_task(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.split("content-length: ")[1].split("\r\n")[0])
                self.heads.append(head)
                self.bodies.append(await reader.readexactly(length))
                writer.write(self.response)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()


def http(content: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(content)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + content


SSE = "content-type: text/event-stream; charset=utf-8"
JSON = "content-type: application/json"


def events(*frames: tuple[str, bytes]) -> bytes:
    return b"".join(b"event: %s\ndata: %s\n\n" % (name.encode(), data) for name, data in frames)


@asynccontextmanager
async def wire(response: bytes) -> AsyncGenerator[Wire]:
    kept = Wire(response)
    server = await asyncio.start_server(kept.accept, "127.0.0.1", 0)
    kept.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield kept
    await asyncio.wait_for(asyncio.gather(*kept.open), 5)


@pytest.fixture
def hostile_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-environment")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "from-environment")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-from-environment: 1")


@pytest.mark.usefixtures("hostile_environment")
@pytest.mark.parametrize(
    ("auth", "present", "absent"),
    [
        ("x-api-key", "\r\nx-api-key: the-key\r\n", "\r\nauthorization:"),
        ("bearer", "\r\nauthorization: bearer the-key\r\n", "\r\nx-api-key:"),
    ],
)
async def test_bytes_and_credential(auth: transport.Auth, present: str, absent: str) -> None:
    async with wire(http(events(BEGIN, END), SSE)) as kept:
        adapter = MessagesAdapter(kept.url, "the-key", auth)
        await adapter.call(ODD, stream=True, on_piece=ignore)
        await adapter.close()
    assert kept.bodies == [ODD]
    (head,) = kept.heads
    assert head.startswith("post /v1/messages http/1.1\r\n")
    assert present in head
    assert absent not in head
    assert "from-environment" not in head
    assert "\r\nanthropic-version: 2023-06-01\r\n" in head
    assert "\r\nuser-agent: counterfoil/" in head
    for name in ("content-type", "accept-encoding", "user-agent", "host", "content-length"):
        assert head.count(f"\r\n{name}: ") == 1
    assert "\r\ncontent-type: application/json\r\n" in head
    assert "\r\naccept-encoding: identity\r\n" in head


@pytest.mark.parametrize(
    ("betas", "header"),
    [((), ""), (("one-2026-01-01",), "one-2026-01-01"), (("a-1", "b-2"), "a-1,b-2")],
)
async def test_beta_features_are_named_in_a_header(betas: tuple[str, ...], header: str) -> None:
    async with wire(http(events(BEGIN, END), SSE)) as kept:
        adapter = MessagesAdapter(kept.url, "k")
        await adapter.call(ODD, stream=True, on_piece=ignore, betas=betas)
        await adapter.close()
    assert kept.bodies == [ODD]
    (head,) = kept.heads
    assert head.count("anthropic-beta") == bool(betas)
    assert not betas or f"\r\nanthropic-beta: {header}\r\n" in head


async def test_a_base_url_may_have_a_path() -> None:
    async with wire(http(events(BEGIN, END), SSE)) as kept:
        adapter = MessagesAdapter(f"{kept.url}/gateway/", "k")
        await adapter.call(ODD, stream=True, on_piece=ignore)
        await adapter.close()
    assert kept.heads[0].startswith("post /gateway/v1/messages ")


async def test_connections_are_used_again() -> None:
    async with wire(http(events(BEGIN, END), SSE)) as kept:
        adapter = MessagesAdapter(kept.url, "k")
        for _ in range(3):
            await adapter.call(ODD, stream=True, on_piece=ignore)
        await adapter.close()
    assert kept.connections == 1


async def test_redirects_are_not_followed() -> None:
    location = "location: http://127.0.0.1:1/elsewhere"
    async with wire(http(b"", location, status="307 Temporary Redirect")) as kept:
        adapter = MessagesAdapter(kept.url, "k")
        with pytest.raises(ProviderFailure) as caught:
            await adapter.call(ODD, stream=True, on_piece=ignore)
        await adapter.close()
    assert (caught.value.kind, caught.value.retryable) == ("request_failed", False)
    assert len(kept.heads) == 1


async def test_failures_are_not_retried() -> None:
    async with wire(http(b"{}", JSON, status="529 Overloaded")) as kept:
        adapter = MessagesAdapter(kept.url, "k")
        with pytest.raises(ProviderFailure):
            await adapter.call(ODD, stream=True, on_piece=ignore)
        await adapter.close()
    assert len(kept.heads) == 1


async def test_the_answer_s_own_type_decides_how_it_is_read() -> None:
    block = b'{"type":"odd"}'
    async with wire(http(b'{"content":[%b],"stop_reason":"end_turn"}' % block, JSON)) as kept:
        adapter = MessagesAdapter(kept.url, "k")
        answer = await adapter.call(ODD, stream=True, on_piece=ignore)
        await adapter.close()
    assert answer.blocks == (block,)
    async with wire(http(events(BEGIN, END), SSE)) as kept:
        adapter = MessagesAdapter(kept.url, "k")
        assert (await adapter.call(ODD, stream=False, on_piece=ignore)).blocks == ()
        await adapter.close()


@pytest.mark.parametrize(
    "response",
    [
        http(b"<html>welcome</html>", "content-type: text/html"),
        http(b'{"content":[{"type":"text","type":"text"}]}', JSON),
        http(b'{"content":["\xff"]}', JSON),
        http(b'{"content":"text"}', JSON),
        http(b'{"content":' + b"[" * 70 + b"]" * 70 + b"}", JSON),
        http(b"event: message_start\ndata: {\xff}\n\n", SSE),
        http(b"event: message_start\ndata: {\n\n", SSE),
        http(b"event: message_start\ndata: []\n\n", SSE),
    ],
)
async def test_what_is_no_answer_is_a_bad_answer(response: bytes) -> None:
    async with wire(response) as kept:
        adapter = MessagesAdapter(kept.url, "k")
        with pytest.raises(ProviderFailure) as caught:
            await adapter.call(ODD, stream=True, on_piece=ignore)
        await adapter.close()
    assert caught.value.kind == "bad_answer"


async def test_an_endless_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "ANSWER_BYTES_MAX", 1000)
    for response in (http(b" " * 2000, JSON), http(b"data: " + b"x" * 2000, SSE)):
        async with wire(response) as kept:
            adapter = MessagesAdapter(kept.url, "k")
            with pytest.raises(ProviderFailure) as caught:
                await adapter.call(ODD, stream=True, on_piece=ignore)
            await adapter.close()
        assert (caught.value.kind, caught.value.retryable) == ("bad_answer", False)


def test_a_key_is_required() -> None:
    with pytest.raises(ValueError, match="key"):
        MessagesAdapter("http://127.0.0.1:1", "")


@pytest.mark.parametrize("key", ["k\n", " k", "k\r\nx: y", "ключ"])
def test_a_key_that_no_header_holds_is_refused_at_the_start(key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        MessagesAdapter("http://127.0.0.1:1", key)


@pytest.mark.parametrize(
    "url",
    ["", "model", "ftp://host", "http://", "http://k:s@host", "http://host?a=1", "http://host#a"],
)
def test_an_address_that_is_more_or_less_than_host_and_path_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        MessagesAdapter(url, "k")
