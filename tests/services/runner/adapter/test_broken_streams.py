"""A stream that stops, breaks, stalls or speaks unknown words never becomes an answer."""

import asyncio
import time

import pytest

from services.runner.adapter.failures import ProviderFailure, UnknownDelta
from services.runner.adapter.messages import MessagesAdapter
from tests.offline_model.support import Server
from tests.services.runner.adapter.support import ask, body, ignore


async def failure_of(adapter: MessagesAdapter, step: object) -> ProviderFailure:
    with pytest.raises(ProviderFailure) as caught:
        await ask(adapter, step)
    return caught.value


async def test_an_unknown_delta_asks_for_the_whole_answer(adapter: MessagesAdapter) -> None:
    step = {"content": ["much text"], "chunks": 4, "unknown_delta": True}
    with pytest.raises(UnknownDelta):
        await ask(adapter, step)
    whole = await ask(adapter, step, stream=False)
    assert whole.blocks == (b'{"type":"text","text":"much text"}',)


@pytest.mark.parametrize("how", ["end", "reset"])
@pytest.mark.parametrize("after", [0, 2, 99])
async def test_a_cut_stream_is_truncated(adapter: MessagesAdapter, how: str, after: int) -> None:
    step = {"content": ["much text"], "chunks": 4, "cut": {"after": after, "how": how}}
    failure = await failure_of(adapter, step)
    assert (failure.kind, failure.retryable) == ("truncated", True)
    assert failure.provider_request_id
    assert failure.usage is not None
    assert failure.usage.input_tokens > 0


async def test_silence_within_a_stream_ends_it(provider: Server) -> None:
    impatient = MessagesAdapter(provider.url, "key", idle_seconds=0.3)
    began = time.monotonic()
    failure = await failure_of(impatient, {"content": ["much text"], "chunks": 4, "stall": 2})
    assert 0.3 <= time.monotonic() - began < 3
    assert (failure.kind, failure.retryable) == ("timeout", True)
    assert failure.message == "The model provider sent nothing for 0.3 seconds."
    await impatient.close()


async def test_silence_before_the_headers_ends_a_stream_but_not_a_whole_answer(
    provider: Server,
) -> None:
    impatient = MessagesAdapter(provider.url, "key", idle_seconds=0.2)
    step = {"content": ["late"], "delay_ms": 500}
    assert (await failure_of(impatient, step)).kind == "timeout"
    assert (await ask(impatient, step, stream=False)).blocks
    await impatient.close()


async def test_a_slow_stream_is_not_silent(provider: Server) -> None:
    impatient = MessagesAdapter(provider.url, "key", idle_seconds=0.4)
    step = {"content": ["much text"], "chunks": 8, "chunk_delay_ms": 100}
    assert (await ask(impatient, step)).blocks == (b'{"type":"text","text":"much text"}',)
    await impatient.close()


@pytest.mark.parametrize(
    ("type_", "kind", "retryable"),
    [
        ("overloaded_error", "overloaded", True),
        ("rate_limit_error", "rate_limited", True),
        ("api_error", "request_failed", True),
        ("something_new", "request_failed", True),
        ("invalid_request_error", "request_failed", False),
    ],
)
async def test_an_error_event_is_a_failure(
    adapter: MessagesAdapter, type_: str, kind: str, retryable: bool
) -> None:
    error = {"after": 1, "type": type_, "message": "sk-secret"}
    failure = await failure_of(adapter, {"content": ["much text"], "stream_error": error})
    assert (failure.kind, failure.retryable) == (kind, retryable)
    assert "sk-secret" not in failure.message


async def test_a_broken_connection_is_unreachable(adapter: MessagesAdapter) -> None:
    failure = await failure_of(adapter, {"content": ["x"], "disconnect": True})
    assert (failure.kind, failure.retryable) == ("unreachable", True)


async def test_a_closed_port_is_unreachable() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    adapter = MessagesAdapter(f"http://127.0.0.1:{port}", "key")
    failure = await failure_of(adapter, "x")
    assert (failure.kind, failure.retryable) == ("unreachable", True)
    await adapter.close()


async def test_cancelling_closes_the_connection_at_once(
    adapter: MessagesAdapter, provider: Server
) -> None:
    step = {"content": ["much text"], "chunks": 4, "stall": 2}
    begun = asyncio.Event()
    call = asyncio.create_task(
        adapter.call(body(step), stream=True, on_piece=lambda piece: begun.set())
    )
    await begun.wait()
    seq = provider.get("/control/requests")["requests"][-1]["seq"]
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    ended = await asyncio.to_thread(
        provider.get, f"/control/requests?wait={seq}&finished=1&timeout_s=5"
    )
    (record,) = [one for one in ended["requests"] if one["seq"] == seq]
    assert record["disposition"] == "disconnected"


async def test_cancelling_before_the_headers_closes_the_connection(
    adapter: MessagesAdapter, provider: Server
) -> None:
    call = asyncio.create_task(
        adapter.call(body({"content": ["x"], "hold": "never"}), stream=True, on_piece=ignore)
    )
    await asyncio.to_thread(provider.get, "/control/holds/never?wait=1&timeout_s=5")
    seq = provider.get("/control/requests")["requests"][-1]["seq"]
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    ended = await asyncio.to_thread(
        provider.get, f"/control/requests?wait={seq}&finished=1&timeout_s=5"
    )
    (record,) = [one for one in ended["requests"] if one["seq"] == seq]
    assert record["disposition"] == "disconnected"


async def test_a_failed_call_leaves_the_adapter_usable(adapter: MessagesAdapter) -> None:
    await failure_of(adapter, {"content": ["much text"], "chunks": 4, "cut": 1})
    assert (await ask(adapter, "fine")).blocks == (b'{"type":"text","text":"fine"}',)
