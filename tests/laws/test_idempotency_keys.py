"""Under an Idempotency-Key a repetition gets the first answer, and its effect exists once.

The answer is stored in the effect's transaction: whenever the process dies, both exist or none.
"""

import asyncio
from typing import Any

import httpx2
import pytest

from gateway.routes import Route
from tests.support.posts import Things, posts
from tests.support.system import System

KEY = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def _named(route: Route) -> str:
    return route.method.name


async def _post(
    http: httpx2.AsyncClient, path: str, body: dict[str, Any] | None, key: str = KEY
) -> httpx2.Response:
    return await http.post(path, json=body, headers={"idempotency-key": key})


def _message(text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"events": [{"type": "user.message", "content": content}]}


async def _messages(http: httpx2.AsyncClient, session: str) -> list[str]:
    listed = await http.get(f"/v1/sessions/{session}/events")
    return [one["id"] for one in listed.json()["data"] if one["type"] == "user.message"]


async def test_every_post_answers_a_repetition_with_the_first_answer(
    running_system: System,
) -> None:
    http = running_system.http()
    for number, route in enumerate(posts()):
        things = await Things.make(http)
        path, body = things.path(route), things.body(route)
        if route.method.name == "ArchiveThread":  # the primary one ends with its session only
            await http.post(f"/v1/sessions/{things.ids['session_id']}/archive")
        first = await _post(http, path, body, f"{KEY} {number}")
        assert first.status_code == 200, (route.rpc, first.text)
        again = await _post(http, path, body, f"{KEY} {number}")
        assert (again.status_code, again.content) == (200, first.content), route.rpc
        if route.method.name.startswith(("Create", "Fork", "Submit")):
            # Without a key it is a new request.
            new = await http.post(path, json=things.body(route))
            assert new.status_code == 200, (route.rpc, new.text)
            assert new.content != first.content, route.rpc


async def test_a_repetition_changes_nothing(running_system: System) -> None:
    http = running_system.http()
    session = (await Things.make(http)).ids["session_id"]
    path = f"/v1/sessions/{session}/events"
    first = await _post(http, path, _message("once"))
    again = await _post(http, path, _message("once"))
    assert again.content == first.content
    assert await _messages(http, session) == [first.json()["data"][0]["id"]]


async def test_a_concurrent_twin_waits_for_the_answer(running_system: System) -> None:
    http = running_system.http()
    session = (await Things.make(http)).ids["session_id"]
    path = f"/v1/sessions/{session}/events"
    answers = await asyncio.gather(*(_post(http, path, _message("twin")) for _ in range(6)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert len(await _messages(http, session)) == 1


async def test_another_request_under_the_same_key_is_a_conflict(running_system: System) -> None:
    http = running_system.http()
    session = (await Things.make(http)).ids["session_id"]
    path = f"/v1/sessions/{session}/events"
    await _post(http, path, _message("one"))
    other = await _post(http, path, _message("two"))
    assert other.status_code == 409
    assert other.headers["x-should-retry"] == "false"
    assert other.json()["error"]["type"] == "conflict_error"
    assert "Idempotency-Key: this key was used for another request" in other.text
    assert len(await _messages(http, session)) == 1


async def test_a_refused_request_leaves_its_key_free(running_system: System) -> None:
    http = running_system.http()
    session = (await Things.make(http)).ids["session_id"]
    path = f"/v1/sessions/{session}/events"
    answer = {"type": "user.custom_tool_result", "custom_tool_use_id": "sevt_unknown"}
    refused = await _post(http, path, {"events": [*_message("x")["events"], answer]})
    assert refused.status_code == 400
    assert (await _post(http, path, _message("good"))).status_code == 200
    assert len(await _messages(http, session)) == 1


@pytest.mark.parametrize("key", ["", "k" * 256, "ключ".encode(), "tab\there"])
async def test_a_bad_key_is_refused_by_name(running_system: System, key: str | bytes) -> None:
    http = running_system.http()
    body = {"name": "never", "model": "claude-sonnet-4-5"}
    answer = await http.post("/v1/agents", json=body, headers={"idempotency-key": key})  # type: ignore[dict-item]
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("Idempotency-Key: ")


async def test_a_turn_that_came_under_a_key_runs(running_system: System) -> None:
    http = running_system.http()
    session = (await Things.make(http)).ids["session_id"]
    path = f"/v1/sessions/{session}/events"
    async with await running_system.client().beta.sessions.events.stream(session) as stream:
        assert (await _post(http, path, _message("run"))).status_code == 200
        async with asyncio.timeout(30):
            async for event in stream:
                if event.type == "session.status_idle":
                    return


@pytest.mark.parametrize("point", ["before", "after"])
async def test_effect_and_answer_are_durable_together(system: System, point: str) -> None:
    await system.start()
    session = (await Things.make(system.http())).ids["session_id"]
    path = f"/v1/sessions/{session}/events"
    await system.kill()
    await system.start(f"idempotency.answer.{point}=kill")
    with pytest.raises(httpx2.HTTPError):  # cut off, or 503 from a gateway that lives on
        (await _post(system.http(), path, _message("survives"))).raise_for_status()
    await system.died()
    await system.start()
    http = system.http()
    assert len(await _messages(http, session)) == (1 if point == "after" else 0)
    again = await _post(http, path, _message("survives"))
    assert again.status_code == 200
    assert await _messages(http, session) == [again.json()["data"][0]["id"]]
