"""U+0000, which a database's text cannot hold, is stored or refused by name; never a 500."""

import itertools
from typing import Any

import httpx2

from tests.support.chat import Chat, custom_tool, is_over, message, result
from tests.support.invariants import check_chains, check_history, check_requests
from tests.support.model import script, text, use
from tests.support.system import System

NUL = "a\u0000b"
SCHEMA = {
    "type": "object",
    "properties": {NUL: {"type": "string", "description": NUL}},
    "required": [NUL],
}
MODEL = "claude-sonnet-4-5"
counter = itertools.count()


def agent(**members: Any) -> dict[str, Any]:
    return {"name": "n", "model": MODEL, **members}


def environment(**members: Any) -> dict[str, Any]:
    return {"name": f"environment {next(counter)}", **members}


AGENTS: dict[str, dict[str, Any]] = {
    "name": agent(name=NUL),
    "model": agent(model=NUL),
    "description": agent(description=NUL),
    "system": agent(system=NUL),
    "metadata key": agent(metadata={NUL: "v"}),
    "metadata value": agent(metadata={"k": NUL}),
    "tool name": agent(tools=[{**custom_tool("t"), "name": NUL}]),
    "tool description": agent(tools=[{**custom_tool("t"), "description": NUL}]),
    "tool schema": agent(tools=[{**custom_tool("t"), "input_schema": SCHEMA}]),
    "built-in name": agent(tools=[{"type": "agent_toolset_20260401", "configs": [{"name": NUL}]}]),
    "server name": agent(mcp_servers=[{"type": "url", "name": NUL, "url": "http://x"}]),
    "server url": agent(mcp_servers=[{"type": "url", "name": "n", "url": f"http://x/{NUL}"}]),
    "skill": agent(skills=[{"type": "custom", "skill_id": NUL}]),
}
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "name": environment(name=NUL),
    "description": environment(description=NUL),
    "metadata key": environment(metadata={NUL: "v"}),
    "metadata value": environment(metadata={"k": NUL}),
    "package": environment(config={"type": "cloud", "packages": {"pip": [NUL]}}),
}
SESSIONS: dict[str, dict[str, Any]] = {
    "title": {"title": NUL},
    "metadata key": {"metadata": {NUL: "v"}},
    "metadata value": {"metadata": {"k": NUL}},
    "agent": {"agent": NUL},
    "environment": {"environment_id": NUL},
}
PATHS = (
    "/v1/agents/{}",
    "/v1/environments/{}",
    "/v1/sessions/{}",
    "/v1/sessions/{}/events",
    "/v1/sessions/{}/events/stream",
    "/v1/sessions/{}/threads",
    "/v1/sessions/{session}/events?page={}",
    "/v1/sessions/{session}/events?types[]={}",
    "/v1/sessions/{session}/threads?page={}",
)


def stored_or_refused(answer: httpx2.Response) -> bool:
    """Whether it was stored; a refusal must say what is wrong."""
    if answer.status_code == 200:
        assert NUL in joined(answer.json()), answer.text
        return True
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["error"]["message"]
    return False


def joined(value: Any) -> str:
    """All keys and values of a JSON value."""
    if isinstance(value, dict):
        found: dict[str, Any] = value
        return " ".join(part for pair in found.items() for part in map(joined, pair))
    if isinstance(value, list):
        items: list[Any] = value
        return " ".join(map(joined, items))
    return str(value)


async def test_in_agents(running_system: System) -> None:
    client = running_system.http()
    for what, asked in AGENTS.items():
        made = await client.post("/v1/agents", json=asked)
        if not stored_or_refused(made):
            continue
        assert (await client.get(f"/v1/agents/{made.json()['id']}")).json() == made.json()
        body = {"agent": made.json()["id"], "environment_id": await an_environment(client)}
        session = await client.post("/v1/sessions", json=body)
        assert session.status_code in (200, 400), (what, session.text)
        if session.status_code == 200:
            await talks(Chat(running_system, session.json()["id"], running_system.client()))


async def test_in_environments(running_system: System) -> None:
    client = running_system.http()
    for asked in ENVIRONMENTS.values():
        made = await client.post("/v1/environments", json=asked)
        if stored_or_refused(made):
            path = f"/v1/environments/{made.json()['id']}"
            assert (await client.get(path)).json() == made.json()
            again = await client.post("/v1/environments", json=asked)
            assert again.status_code == 409


async def test_in_sessions(running_system: System) -> None:
    client = running_system.http()
    agent_id = (await client.post("/v1/agents", json=agent())).json()["id"]
    for members in SESSIONS.values():
        body = {"agent": agent_id, "environment_id": await an_environment(client), **members}
        made = await client.post("/v1/sessions", json=body)
        if stored_or_refused(made):
            await talks(Chat(running_system, made.json()["id"], running_system.client()))


async def test_in_paths_and_queries(running_system: System) -> None:
    chat = await Chat.open(running_system)
    client = running_system.http()
    for path in PATHS:
        answer = await client.get(path.format("%00x", session=chat.id))
        assert answer.status_code < 500, (path, answer.text)
    key = {"idempotency-key": "k"}
    body = {"events": [message("x")]}
    answer = await client.post("/v1/sessions/%00/events", json=body, headers=key)
    assert answer.status_code in (400, 404), answer.text


async def test_in_events_of_both_sides(running_system: System) -> None:
    chat = await Chat.open(running_system, tools=[custom_tool("record")])
    calls = [use("record", **{NUL: NUL}), use("note", text=NUL), use(NUL, text=NUL)]
    async with chat.stream() as stream:
        await chat.send(message(script({"content": [text(NUL), *calls]}, {"content": [text(NUL)]})))
        events = await stream.until(lambda e: e["type"] == "agent.custom_tool_use")
        await chat.send(result(events[-1]["id"], NUL, is_error=True))
        events = await stream.until(is_over)
    said = [e["content"][0]["text"] for e in events if e["type"] == "agent.message"]
    assert said == [NUL]
    await talks(chat)


async def an_environment(client: httpx2.AsyncClient) -> str:
    return (await client.post("/v1/environments", json=environment())).json()["id"]


async def talks(chat: Chat) -> None:
    """The session takes a message and answers it, and everything of it holds."""
    events = await chat.say(script({"content": [text(f"well {NUL}")]}))
    assert events[-1]["stop_reason"]["type"] == "end_turn"
    history = await chat.history()
    check_history(history)
    await check_requests(chat, await check_chains(chat), all_of_them=False)
