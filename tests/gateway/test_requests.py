"""What clients send reaches the services exactly, or is refused by the place that is wrong."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from gateway import app as gateway_app
from gateway import exchange
from tests.gateway.support import SESSION, Behaviour

MESSAGE = {"type": "user.message", "content": [{"type": "text", "text": "hello"}]}
EVENTS = f"/v1/sessions/{SESSION}/events"


def error_of(response: httpx2.Response) -> tuple[int, str]:
    body = response.json()
    assert body["request_id"] == response.headers["request-id"]
    return response.status_code, body["error"]["message"]


async def test_a_body_is_decoded_and_the_path_is_bound(
    client: httpx2.AsyncClient, behaviour: Behaviour
) -> None:
    behaviour.data = [b'{"id":"sevt_1","n":1.10}']
    response = await client.post(EVENTS, json={"events": [MESSAGE]})
    assert response.status_code == 200
    assert response.content == b'{"data":[{"id":"sevt_1","n":1.10}]}'
    (request,) = behaviour.calls
    assert request.session_id == SESSION
    assert request.events[0].user_message.content[0].text.text == "hello"


async def test_stored_bytes_pass_through_lists_unread(
    client: httpx2.AsyncClient, behaviour: Behaviour
) -> None:
    stored = [b'{"b":1e400,"a":1.10,"a":"\\u0000"}', b'{"x": [1 , 2]}']
    behaviour.data = stored
    response = await client.get(EVENTS, params={"limit": 2, "order": "desc"})
    assert response.content == b'{"data":[' + b",".join(stored) + b'],"next_page":null}'
    assert response.headers["content-type"] == "application/json"
    assert behaviour.calls[0].limit == 2


async def test_unknown_query_keys_are_ignored(
    client: httpx2.AsyncClient, behaviour: Behaviour
) -> None:
    response = await client.get(f"{EVENTS}?beta=true&types%5B%5D=a&types[]=b&types=c")
    assert response.status_code == 200
    assert list(behaviour.calls[0].types) == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
async def test_a_body_is_json_whatever_its_type_says(
    client: httpx2.AsyncClient, behaviour: Behaviour, kind: str | None
) -> None:
    headers = {"content-type": kind} if kind else {}
    content = json.dumps({"name": "a", "model": "m"}).encode()
    response = await client.post("/v1/agents", content=content, headers=headers)
    assert (response.status_code, response.json()["id"]) == (200, "agent_1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"name": "a", "model": "m", "bogus": 1}', "bogus: "),
        (b'{"name": "a", "name": "b", "model": "m"}', "name: "),
        (b'{"name": "\\ud800", "model": "m"}', "name: "),
        (b'{"name": "a\xff", "model": "m"}', ""),
        (b'{"name": "a", ', ""),
        (b"[]", ""),
        (b'{"name": 1, "model": "m"}', "name: "),
        (b'{"name": "", "model": "m"}', "name: "),
        (b'{"name": "a", "model": "m", "system": ' + b"[" * 100 + b"]" * 100 + b"}", "system"),
    ],
)
async def test_a_bad_body_is_refused_with_its_path(
    client: httpx2.AsyncClient, behaviour: Behaviour, content: bytes, message: str
) -> None:
    status, text = error_of(await client.post("/v1/agents", content=content))
    assert status == 400
    assert text.startswith(message)
    assert behaviour.calls == []


@pytest.mark.parametrize("name", ["session_id", "workspace_id"])
async def test_what_the_path_or_the_key_decides_is_refused_in_a_body(
    client: httpx2.AsyncClient, behaviour: Behaviour, name: str
) -> None:
    body = {"events": [MESSAGE], name: "sesn_other"}
    status, text = error_of(await client.post(EVENTS, json=body))
    assert (status, text.split(":")[0]) == (400, name)
    assert behaviour.calls == []


async def test_what_the_path_decides_is_refused_in_a_query(client: httpx2.AsyncClient) -> None:
    status, text = error_of(await client.get(f"{EVENTS}?session_id=other"))
    assert (status, text.split(":")[0]) == (400, "session_id")


async def test_a_bad_query_value_is_refused_by_its_name(client: httpx2.AsyncClient) -> None:
    assert error_of(await client.get(f"{EVENTS}?limit=many"))[1].startswith("limit: ")
    assert error_of(await client.get(f"{EVENTS}?limit=0"))[1].startswith("limit: ")
    assert error_of(await client.get(f"{EVENTS}?page=%FF"))[1].startswith("page: ")


async def test_an_encoded_slash_stays_inside_its_segment(
    client: httpx2.AsyncClient, behaviour: Behaviour
) -> None:
    response = await client.get("/v1/sessions/a%2Fb%20%C3%A9")
    assert response.json()["id"] == "a/b é"


async def test_a_path_that_is_not_utf8_is_refused_by_field(client: httpx2.AsyncClient) -> None:
    status, text = error_of(await client.get("/v1/sessions/%FF"))
    assert (status, text) == (400, "session_id: is not valid UTF-8")


@pytest.mark.parametrize("content", [b"", b" \n", b"{}"])
async def test_a_call_without_body_takes_none_or_an_empty_object(
    client: httpx2.AsyncClient, content: bytes
) -> None:
    response = await client.post("/v1/agents/agent_7/archive", content=content)
    assert response.json()["id"] == "agent_7"


@pytest.mark.parametrize("content", [b'{"force": true}', b"[]", b"nonsense"])
async def test_a_call_without_body_refuses_members(
    client: httpx2.AsyncClient, content: bytes
) -> None:
    status, text = error_of(await client.post("/v1/agents/agent_7/archive", content=content))
    assert status == 400
    assert ("force" in text) == (b"force" in content)


async def test_a_large_body_is_decoded_beside_the_loop(
    client: httpx2.AsyncClient, behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    threaded: list[object] = []
    to_thread: Any = asyncio.to_thread

    async def spy(function: Any, *args: Any) -> object:
        threaded.append(function)
        return await to_thread(function, *args)

    monkeypatch.setattr(asyncio, "to_thread", spy)
    body = json.dumps({"events": [MESSAGE]}).encode()
    at_limit = body + b" " * (gateway_app.THREADED_BYTES_MIN - len(body))
    assert (await client.post(EVENTS, content=at_limit)).status_code == 200
    assert threaded == []
    assert (await client.post(EVENTS, content=at_limit + b" ")).status_code == 200
    assert len(threaded) == 1
    bad = b" " * gateway_app.THREADED_BYTES_MIN + b'{"bogus": 1}'
    assert error_of(await client.post(EVENTS, content=bad))[1].startswith("bogus: ")


async def test_a_body_beyond_the_limit_is_413_declared_or_chunked(
    http: httpx2.AsyncClient, behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "BODY_BYTES_MAX", 1000)
    body = json.dumps({"name": "a", "model": "m"}).encode().ljust(1001)

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 100):
            yield body[at : at + 100]

    for content in (body, chunks()):
        response = await http.post("/v1/agents", content=content)
        assert response.json()["error"] == {
            "type": "request_too_large",
            "message": "the body is larger than 1000 bytes",
        }
        assert response.status_code == 413
    assert behaviour.calls == []
    assert (await http.post("/v1/agents", content=body[:1000])).status_code == 200


def test_the_limit_is_32_mib() -> None:
    assert exchange.BODY_BYTES_MAX == 33_554_432
