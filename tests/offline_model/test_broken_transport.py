"""Held, slow, cut, stalled and dropped answers."""

import asyncio
import time
from typing import Any

import anthropic
import httpx2
import pytest

from tests.offline_model.support import MODEL, Server, request, script, user

STREAM = {"content": ["abcdef"], "chunk_chars": 2}


def last(server: Server, wait: int) -> Any:
    """The newest record, once ``wait`` requests have ended."""
    return server.get(f"/control/requests?wait={wait}&finished=1")["requests"][-1]


@pytest.fixture(autouse=True)
def clean(server: Server) -> None:
    server.post("/control/reset")


async def held(server: Server, name: str) -> None:
    state = await asyncio.to_thread(server.get, f"/control/holds/{name}?wait=1")
    assert state["waiting"] == 1


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_hold_before_the_answer_ends_with_its_release(
    server: Server, streamed: bool
) -> None:
    messages: Any = [user(script({"content": ["free"], "hold": "before"}))]
    async with server.async_client() as client:
        asked: Any = asyncio.create_task(
            client.messages.create(model=MODEL, max_tokens=1, messages=messages, stream=streamed)
        )
        await held(server, "before")
        assert not asked.done()
        assert server.post("/control/release/before")["held"] == 1
        answer: Any = await asked
        if streamed:
            assert [event.type async for event in answer][-1] == "message_stop"
        else:
            assert answer.content[0].text == "free"
    # Released is released: a repeat after a crash passes.
    assert server.say(messages[0])["content"][0]["text"] == "free"
    assert server.post("/control/close/before")["released"] is False


async def test_a_hold_in_the_middle_shows_what_came_before_it(server: Server) -> None:
    step = {**STREAM, "hold": {"name": "middle", "after": 2}}
    seen: list[str] = []
    async with (
        server.async_client() as client,
        client.messages.stream(
            model=MODEL, max_tokens=1, messages=[{"role": "user", "content": script(step)}]
        ) as stream,
    ):
        async for text in stream.text_stream:
            seen.append(text)
            if len(seen) == 2:
                await held(server, "middle")
                server.post("/control/release/middle")
    assert seen == ["ab", "cd", "ef"]


async def test_a_client_that_leaves_frees_the_hold_and_is_recorded(server: Server) -> None:
    step = {"content": ["x"], "hold": "left"}
    async with server.async_client() as client:
        asked = asyncio.create_task(
            client.messages.create(
                model=MODEL, max_tokens=1, messages=[{"role": "user", "content": script(step)}]
            )
        )
        await held(server, "left")
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
    record = await asyncio.to_thread(last, server, 1)
    assert record["disposition"] == "disconnected"
    assert server.get("/control/holds/left")["waiting"] == 0


async def test_a_stalled_stream_stays_open_until_the_client_leaves(server: Server) -> None:
    seen: list[str] = []

    async def read(client: anthropic.AsyncAnthropic) -> None:
        message: Any = user(script({**STREAM, "stall": 1}))
        async with client.messages.stream(
            model=MODEL, max_tokens=1, messages=[message], timeout=httpx2.Timeout(5, read=0.3)
        ) as stream:
            async for text in stream.text_stream:
                seen.append(text)  # noqa: PERF401 - kept up to the timeout

    async with server.async_client() as client:
        with pytest.raises(httpx2.ReadTimeout):
            await read(client)
    assert seen == ["ab"]
    assert (await asyncio.to_thread(last, server, 1))["disposition"] == "disconnected"


def test_a_cut_stream_ends_without_message_stop(server: Server) -> None:
    messages: Any = [user(script({**STREAM, "cut": 2}))]
    stream = server.sdk.messages.create(model=MODEL, max_tokens=1, messages=messages, stream=True)
    kinds = [event.type for event in stream]
    assert kinds == ["message_start", "content_block_start", *["content_block_delta"] * 2]
    whole: Any = server.sdk.messages.create(model=MODEL, max_tokens=1, messages=messages)
    assert whole.content[0].text == "abcdef"


def test_a_reset_stream_is_a_transport_error(server: Server) -> None:
    step = {**STREAM, "cut": {"after": 99, "how": "reset"}}
    messages: Any = [user(script(step))]
    stream = server.sdk.messages.create(model=MODEL, max_tokens=1, messages=messages, stream=True)
    with pytest.raises((httpx2.TransportError, anthropic.APIConnectionError)):
        assert all(event.type != "message_delta" for event in stream)
    assert last(server, 1)["disposition"] == "dropped"


@pytest.mark.parametrize("streamed", [True, False])
def test_a_dropped_connection_is_a_connection_error(server: Server, streamed: bool) -> None:
    with pytest.raises(anthropic.APIConnectionError):
        server.sdk.messages.create(
            model=MODEL,
            max_tokens=1,
            messages=[{"role": "user", "content": script({"disconnect": True})}],
            stream=streamed,
        )
    assert last(server, 1)["disposition"] == "dropped"


def test_delays_come_before_headers_and_between_deltas(server: Server) -> None:
    step = {**STREAM, "delay_ms": 60, "chunk_delay_ms": 20}
    begun = time.monotonic()
    body = request(script(step), stream=True)
    with httpx2.stream(
        "POST",
        server.url + "/v1/messages",
        json=body,
        headers={"x-api-key": "k", "anthropic-version": "2023-06-01"},
    ) as response:
        headers = time.monotonic() - begun
        chunks = [chunk for chunk in response.iter_raw() if chunk]
    assert headers >= 0.06
    assert time.monotonic() - begun >= 0.12
    assert len(chunks) >= 3
