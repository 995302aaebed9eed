"""What every client must be able to do. One list for all of them; see `SCENARIOS`."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.conformance.client import Client, Event, Refused
from tests.support.model import Model, script, text, use

BEGINS = ["session.thread_status_running", "session.status_running"]
ASKS = script(
    {"content": [use("weather", text="Oslo"), use("clock", text="Oslo")]},
    {"content": [text("It is warm and early.")]},
)
HOLDS = script({"content": [text("one two three four five")], "chunks": 5, "hold": "middle"})


def types(events: list[Event]) -> list[str]:
    """Types in order; a star for a queued copy."""
    return [e["type"] + ("*" if e.get("processed_at", 0) is None else "") for e in events]


async def text_turn(client: Client, _: Model) -> None:
    """A message is answered on the stream, and the history says the same."""
    session = await client.session("text turn")
    await client.do("stream_open", session_id=session)
    said = script({"content": [text("Good morning, æøå 😀.")]})
    (echo,) = await client.send(session, {"message": said})
    seen = await client.until("session.status_idle")
    await client.do("stream_close")
    assert types(seen) == [
        "user.message*",
        *BEGINS,
        "user.message",
        "span.model_request_start",
        "agent.message",
        "span.model_request_end",
        "session.thread_status_idle",
        "session.usage",
        "session.status_idle",
    ]
    assert seen[0] == echo
    assert {**seen[3], "processed_at": None} == echo
    assert seen[5]["content"] == [{"type": "text", "text": "Good morning, æøå 😀."}]
    assert seen[-1]["stop_reason"] == {"type": "end_turn"}
    assert await client.history(session) == seen[1:]
    assert (await client.do("session_get", id=session))["status"] == "idle"


async def gate_loop(client: Client, _: Model) -> None:
    """Two calls in one answer; the session waits for both, and goes on behind the second."""
    session = await client.session("gate loop", "weather", "clock")
    await client.do("stream_open", session_id=session)
    await client.send(session, {"message": ASKS})
    seen = await client.until("session.status_idle", stop="requires_action")
    calls = [event for event in seen if event["type"] == "agent.custom_tool_use"]
    assert [(c["name"], c["input"]) for c in calls] == [
        ("weather", {"text": "Oslo"}),
        ("clock", {"text": "Oslo"}),
    ]
    first, second = (call["id"] for call in calls)
    assert seen[-1]["stop_reason"]["event_ids"] == [first, second]
    await client.send(session, {"result": first, "text": "25 degrees"})
    waits = await client.until("session.status_idle", stop="requires_action")
    assert waits[-1]["stop_reason"]["event_ids"] == [second]
    await client.send(session, {"result": second, "text": "06:00"})
    rest = await client.until("session.status_idle", stop="end_turn")
    await client.do("stream_close")
    assert "It is warm and early." in str(rest)
    with pytest.raises(Refused) as caught:
        await client.send(session, {"result": first, "text": "again"})
    assert caught.value.kind == "invalid"
    assert first in caught.value.message


async def interrupt(client: Client, model: Model) -> None:
    """An interrupt ends the turn that runs; the next message has a turn of its own."""
    session = await client.session("interrupt")
    await client.do("stream_open", session_id=session)
    await client.send(session, {"message": HOLDS})
    await model.held("middle")
    await client.send(session, {"interrupt": True})
    seen = await client.until("session.status_idle")
    assert "user.interrupt" in types(seen)
    assert seen[-1]["stop_reason"] == {"type": "end_turn"}
    await client.send(session, {"message": script({"content": [text("back again")]})})
    assert "back again" in str(await client.until("session.status_idle"))
    await client.do("stream_close")


async def reconnect(client: Client, _: Model) -> None:
    """Nothing is missed by who opens the stream, then reads the history."""
    session = await client.session("reconnect", "weather", "clock")
    await client.do("stream_open", session_id=session)
    await client.send(session, {"message": ASKS})
    await client.until("session.status_idle")
    await client.do("stream_close")
    await client.do("stream_open", session_id=session)
    known = await client.history(session)
    calls = [event["id"] for event in known if event["type"] == "agent.custom_tool_use"]
    await client.send(session, *({"result": call, "text": "late"} for call in calls))
    seen = await client.until("session.status_idle", stop="end_turn")
    await client.do("stream_close")
    assert known + seen == await client.history(session)


async def filters(client: Client, _: Model) -> None:
    """The history by type and from its end, in pages of any size."""
    session = await client.session("filters", "weather", "clock")
    await client.do("stream_open", session_id=session)
    await client.send(session, {"message": ASKS})
    await client.until("session.status_idle")
    await client.do("stream_close")
    whole = await client.history(session)
    chosen = ["user.message", "agent.custom_tool_use"]
    some = [event for event in whole if event["type"] in chosen]
    assert len(some) == 3
    for limit in (1, 2, 1000):
        asked = {"session_id": session, "limit": limit}
        assert await client.do("events_list", **asked, types=chosen) == some
        assert await client.do("events_list", **asked, order="desc") == whole[::-1]
        both = await client.do("events_list", **asked, types=chosen, order="desc")
        assert both == some[::-1]


async def looking(client: Client, _: Model) -> None:
    """What a session waits for and its thread can be read at any time, without its history."""
    session = await client.session("looking", "weather", "clock")
    assert await client.do("pending_actions", session_id=session) == []
    await client.do("stream_open", session_id=session)
    await client.send(session, {"message": ASKS})
    seen = await client.until("session.status_idle", stop="requires_action")
    waits = [
        {"event_id": e["id"], "name": e["name"], "answer_type": "user.custom_tool_result"}
        for e in seen
        if e["type"] == "agent.custom_tool_use"
    ]
    assert await client.do("pending_actions", session_id=session) == waits
    await client.send(session, {"result": waits[0]["event_id"], "text": "25 degrees"})
    assert await client.do("pending_actions", session_id=session) == waits[1:]
    await client.send(session, {"result": waits[1]["event_id"], "text": "06:00"})
    await client.until("session.status_idle", stop="end_turn")
    await client.do("stream_close")
    assert await client.do("pending_actions", session_id=session) == []
    (thread,) = await client.do("thread_list", session_id=session)
    assert (thread["status"], thread["parent"]) == ("idle", None)
    running = next(event for event in seen if event["type"] == "session.thread_status_running")
    assert thread["id"] == running["session_thread_id"]
    shown = await client.do("thread_events", session_id=session, thread_id=thread["id"], limit=4)
    assert shown == await client.history(session)


async def pagination(client: Client, _: Model) -> None:
    """Pages of any size hold the same events and sessions, each once."""
    agent = await client.do("agent_create", name="pages", tools=[])
    environment = await client.do("environment_create", name="pages")
    ids = {"agent_id": agent["id"], "environment_id": environment["id"]}
    made = [(await client.do("session_create", **ids))["id"] for _ in range(5)]
    for limit in (2, 5, 100):
        listed = await client.do("session_list", agent_id=agent["id"], limit=limit)
        assert [one["id"] for one in listed] == made[::-1]
    session = made[0]
    await client.do("stream_open", session_id=session)
    for number in range(2):
        await client.send(session, {"message": script({"content": [text(f"turn {number}")]})})
        await client.until("session.status_idle")
    await client.do("stream_close")
    whole = await client.history(session)
    assert len(whole) >= 18
    for limit in (1, 7, len(whole)):
        assert await client.history(session, limit) == whole


async def errors(client: Client, _: Model) -> None:
    """Every refusal says what was wrong, and over REST carries the id of its request."""
    session = await client.session("errors")
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("not found", "session_get", {"id": "sesn_unknown"}),
        ("not found", "agent_get", {"id": "agent_unknown"}),
        ("not found", "send", {"session_id": "sesn_unknown", "events": [{"message": "hello"}]}),
        ("not found", "stream_open", {"session_id": "sesn_unknown"}),
        ("invalid", "session_update", {"id": session, "title": "x" * 1001}),
        ("invalid", "events_list", {"session_id": session, "limit": 1001}),
        ("invalid", "send", {"session_id": session, "events": []}),
    ]
    for kind, op, args in cases:
        with pytest.raises(Refused) as caught:
            await client.do(op, **args)
        assert (op, caught.value.kind) == (op, kind), str(caught.value)
        assert len(caught.value.message) > 5
        if client.rest:
            assert str(caught.value.request_id).startswith("req_")


async def sessions_live(client: Client, _: Model) -> None:
    """A session is renamed, archived (and then only read) and deleted."""
    session = await client.session("life")
    assert (await client.do("session_update", id=session, title="Trip"))["title"] == "Trip"
    assert (await client.do("session_get", id=session))["title"] == "Trip"
    archived = await client.do("session_archive", id=session)
    assert (archived["archived"], archived["status"]) == (True, "terminated")
    with pytest.raises(Refused) as caught:
        await client.send(session, {"message": "too late"})
    assert (caught.value.kind, "archived" in caught.value.message) == ("invalid", True)
    history = await client.history(session)
    assert types(history)[-1] == "session.status_terminated"
    assert await client.do("session_delete", id=session) == session
    with pytest.raises(Refused) as caught:
        await client.do("session_get", id=session)
    assert caught.value.kind == "not found"


async def agent_versions(client: Client, _: Model) -> None:
    """Every change is a version; sessions keep theirs, and only the newest can be changed."""
    agent = await client.do("agent_create", name="first", tools=["weather"])
    assert (agent["version"], agent["archived"]) == (1, False)
    for version, name in enumerate(["second", "third"], start=1):
        made = await client.do("agent_update", id=agent["id"], version=version, name=name)
        assert (made["version"], made["name"]) == (version + 1, name)
    again = await client.do("agent_update", id=agent["id"], version=3, name="third")
    assert again["version"] == 3
    with pytest.raises(Refused) as caught:
        await client.do("agent_update", id=agent["id"], version=2, name="late")
    assert caught.value.kind == "conflict"
    for limit in (1, 2, 100):
        listed = await client.do("agent_versions", id=agent["id"], limit=limit)
        found = [(one["version"], one["name"]) for one in listed]
        assert found == [(3, "third"), (2, "second"), (1, "first")]
    assert (await client.do("agent_get", id=agent["id"], version=1))["name"] == "first"
    assert (await client.do("agent_get", id=agent["id"]))["name"] == "third"
    environment = await client.do("environment_create", name="versions")
    ids = {"agent_id": agent["id"], "environment_id": environment["id"]}
    assert (await client.do("session_create", **ids))["agent_version"] == 3
    older = await client.do("session_create", **ids, agent_version=1)
    assert older["agent_version"] == 1
    assert (await client.do("agent_archive", id=agent["id"]))["archived"]
    assert (await client.do("session_get", id=older["id"]))["agent_version"] == 1
    with pytest.raises(Refused) as caught:
        await client.do("session_create", **ids)
    assert "archived" in caught.value.message


Scenario = Callable[[Client, Model], Awaitable[None]]

SCENARIOS: list[Scenario] = [
    text_turn,
    gate_loop,
    interrupt,
    reconnect,
    filters,
    looking,
    pagination,
    errors,
    sessions_live,
    agent_versions,
]
