"""A repetition without a key: answered with the first answer only if nobody could read that."""

import asyncio
import json
from typing import Any

import httpx2
import pytest

from gateway import retries
from gateway.server import Server
from tests.gateway.support import API_KEY, SESSION, Behaviour

PATH = f"/v1/sessions/{SESSION}/events"
BODY = json.dumps(
    {"events": [{"type": "user.message", "content": [{"type": "text", "text": "hi"}]}]}
).encode()
RETRY: dict[str, Any] = {"x-stainless-retry-count": "1"}


async def ask_and_leave(server: Server, behaviour: Behaviour, *, finish: bool = True) -> None:
    """A client that is gone before its answer is written."""
    behaviour.release = asyncio.Event()
    behaviour.subscribed.clear()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {API_KEY}\r\n"
        f"content-length: {len(BODY)}\r\n\r\n"
    )
    writer.write(head.encode() + BODY)
    await behaviour.subscribed.wait()
    writer.transport.abort()
    await asyncio.sleep(0.05)  # the server hears of it in its own time
    behaviour.data = [b'{"id":"sevt_first"}']
    if finish:
        behaviour.release.set()
        await asyncio.sleep(0.05)
        behaviour.data = [b'{"id":"sevt_second"}']


async def post(http: httpx2.AsyncClient, body: bytes = BODY, **headers: Any) -> Any:
    sent = {key.replace("_", "-"): value for key, value in headers.items()}
    answer = await http.post(PATH, content=body, headers=sent)
    assert answer.status_code == 200
    return answer.json()["data"][0]["id"]


async def test_a_retry_after_a_lost_client_gets_the_first_answer(
    server: Server, http: httpx2.AsyncClient, behaviour: Behaviour
) -> None:
    await ask_and_leave(server, behaviour)
    assert await post(http, **RETRY) == "sevt_first"
    assert len(behaviour.calls) == 1
    assert await post(http, **RETRY) == "sevt_second", "it was read, so that is a new message"


async def test_a_retry_while_the_first_still_runs_waits_for_its_answer(
    server: Server, http: httpx2.AsyncClient, behaviour: Behaviour
) -> None:
    await ask_and_leave(server, behaviour, finish=False)
    retry = asyncio.ensure_future(post(http, **RETRY))
    await asyncio.sleep(0.1)
    assert behaviour.release is not None
    behaviour.release.set()
    assert await retry == "sevt_first"
    assert len(behaviour.calls) == 1


@pytest.mark.parametrize(
    "changes",
    [{}, {"x_stainless_retry_count": "0"}, {**RETRY, "idempotency_key": "key"}],
    ids=["no retry", "first attempt", "own key"],
)
async def test_what_is_no_retry_is_new_input(
    server: Server, http: httpx2.AsyncClient, behaviour: Behaviour, changes: dict[str, Any]
) -> None:
    await ask_and_leave(server, behaviour)
    if "idempotency_key" in changes:  # this service keeps no answers, so it was asked
        sent = {key.replace("_", "-"): value for key, value in changes.items()}
        answer = await http.post(PATH, content=BODY, headers=sent)
        assert "keeps no answers" in answer.text
        return
    assert await post(http, **changes) == "sevt_second"


async def test_another_body_is_new_input(
    server: Server, http: httpx2.AsyncClient, behaviour: Behaviour
) -> None:
    await ask_and_leave(server, behaviour)
    assert await post(http, BODY.replace(b"hi", b"ho"), **RETRY) == "sevt_second"


async def test_a_client_that_read_its_answer_sends_new_input(
    http: httpx2.AsyncClient, behaviour: Behaviour
) -> None:
    behaviour.data = [b'{"id":"sevt_first"}']
    assert await post(http) == "sevt_first"
    behaviour.data = [b'{"id":"sevt_second"}']
    assert await post(http, **RETRY) == "sevt_second"


async def test_an_unread_answer_is_kept_for_a_bounded_time(
    server: Server,
    http: httpx2.AsyncClient,
    behaviour: Behaviour,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retries, "SECONDS", 0.0)
    await ask_and_leave(server, behaviour)
    assert await post(http, **RETRY) == "sevt_second"


async def test_unread_answers_are_bounded_in_number_and_bytes(
    server: Server,
    http: httpx2.AsyncClient,
    behaviour: Behaviour,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retries, "_KEPT_BYTES_MAX", 1)
    await ask_and_leave(server, behaviour)
    assert await post(http, **RETRY) == "sevt_second"
