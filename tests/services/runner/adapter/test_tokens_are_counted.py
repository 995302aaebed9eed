"""The provider is asked how large a request is; whatever it does, the caller goes on."""

import asyncio
import json
import time

import pytest

from services.runner.adapter import messages
from services.runner.adapter.messages import MessagesAdapter
from tests.offline_model.support import Server
from tests.services.runner.adapter.peers import Connection, peer
from tests.services.runner.adapter.peers import adapter as asking_of
from tests.services.runner.adapter.support import body
from tests.services.runner.adapter.test_requests_are_exact import JSON, http


def counted_body(*steps: object) -> bytes:
    """What the counting endpoint takes: a request without its output and its stream."""
    request = json.loads(body(*steps))
    return json.dumps({k: request[k] for k in ("model", "messages")}).encode()


async def test_the_provider_counts_exact_bytes(adapter: MessagesAdapter, provider: Server) -> None:
    assert await adapter.count_tokens(counted_body({"count_tokens": 12345})) == 12345
    small = counted_body("small")
    assert (await adapter.count_tokens(small, ["a-beta", "b-beta"]) or 0) > 5
    record = provider.get("/control/requests")["requests"][-1]
    assert record["path"] == "/v1/messages/count_tokens"
    assert record["headers"]["anthropic-beta"] == "a-beta,b-beta"
    assert provider.http.get(f"/control/requests/{record['seq']}").content == small


async def test_a_refusal_is_no_count(adapter: MessagesAdapter) -> None:
    assert await adapter.count_tokens(b"no json") is None


@pytest.mark.parametrize(
    "answer",
    [
        http(b'{"input_tokens":0}', JSON),
        http(b'{"input_tokens":-4}', JSON),
        http(b'{"input_tokens":"7"}', JSON),
        http(b'{"input_tokens":null}', JSON),
        http(b'{"input_tokens":1.5}', JSON),
        http(b'{"tokens":7}', JSON),
        http(b"[]", JSON),
        http(b'{"input_tokens":7', JSON),
        http(b"", JSON),
        http(b"{}", JSON, status="404 Not Found"),
        http(b"{}", JSON, status="529 Overloaded"),
        http(b"{}", JSON, status="302 Found"),
        b"what?\r\n\r\n",
        b"",
    ],
)
async def test_an_answer_without_a_number_is_no_count(answer: bytes) -> None:
    async def act(connection: Connection) -> None:
        await connection.request()
        await connection.send(answer)

    async with peer(act) as made, asking_of(made.url) as asking:
        assert await asking.count_tokens(b"{}") is None
    assert made.requests == 1


async def test_nobody_there_is_no_count() -> None:
    async with asking_of("http://provider.invalid") as asking:
        assert await asking.count_tokens(b"{}") is None


@pytest.mark.parametrize("trickles", [False, True])
async def test_a_count_that_does_not_come_is_not_awaited(
    monkeypatch: pytest.MonkeyPatch, trickles: bool
) -> None:
    monkeypatch.setattr(messages, "_COUNT_SECONDS", 0.3)

    async def act(connection: Connection) -> None:
        await connection.request()
        if trickles:
            await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
            while True:
                await connection.send(b" ")
                await asyncio.sleep(0.05)
        await connection.gone()

    async with peer(act) as made, asking_of(made.url) as asking:
        began = time.monotonic()
        assert await asking.count_tokens(b"{}") is None
    assert 0.25 < time.monotonic() - began < 5


async def test_cancelling_a_count_closes_the_connection() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def act(connection: Connection) -> None:
        await connection.request()
        begun.set()
        await connection.gone()
        ended.set()

    async with peer(act) as made, asking_of(made.url) as asking:
        counting = asyncio.create_task(asking.count_tokens(b"{}"))
        await begun.wait()
        counting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await counting
        await asyncio.wait_for(ended.wait(), 5)
