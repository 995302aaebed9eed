"""The three forms in which a session names its agent, and changes of the session's own copy."""

from typing import Any

import anthropic
import pytest

from tests.sessions.support import refused
from tests.support.chat import Chat, custom_tool, is_over, message, types_of
from tests.support.model import script, text
from tests.support.system import System

OLD, NEW = custom_tool("decide"), custom_tool("measure")
MCP = {"type": "url", "name": "docs", "url": "https://mcp.example.com"}
SLOW = script({"content": [text("slowly")], "delay_ms": 2000})


async def create(chat: Chat, agent: Any) -> Any:
    sessions: Any = chat.client.beta.sessions
    return await sessions.create(agent=agent, environment_id=chat.environment_id)


async def test_three_forms_name_an_agent(running_system: System) -> None:
    chat = await Chat.open(running_system, tools=[OLD], system_prompt="Be kind.")
    whole = (await chat.client.beta.sessions.retrieve(chat.id)).agent
    assert (whole.system, whole.version) == ("Be kind.", 1)
    reference = {"type": "agent", "id": chat.agent_id, "version": 1}
    assert (await create(chat, reference)).agent == whole
    inherits = {"type": "agent_with_overrides", "id": chat.agent_id}
    assert (await create(chat, inherits)).agent == whole

    changes = {"model": "claude-haiku-4-5", "system": "Be brief.", "tools": [NEW], "version": 1}
    agent = (await create(chat, {**inherits, **changes})).agent
    assert (agent.id, agent.version, agent.name) == (whole.id, 1, whole.name)
    assert (agent.model.id, agent.system) == ("claude-haiku-4-5", "Be brief.")
    assert [tool.name for tool in agent.tools] == ["measure"]

    for nothing in ({"system": None, "tools": None}, {"system": "", "tools": []}):
        agent = (await create(chat, {**inherits, **nothing})).agent
        assert (agent.system, agent.tools) == (None, [])
    assert (await chat.client.beta.agents.retrieve(chat.agent_id)).system == "Be kind."


async def test_bad_overrides_are_refused_by_path(running_system: System) -> None:
    chat = await Chat.open(running_system, tools=[OLD])
    before = [one.id async for one in chat.client.beta.sessions.list()]
    form = {"type": "agent_with_overrides", "id": chat.agent_id}
    twice = {"tools": [NEW, NEW]}
    rows: list[tuple[dict[str, Any], str]] = [
        ({"model": None}, "agent.model"),
        ({"model": ""}, "agent.model"),
        ({"version": 7}, "agent: "),
        ({"version": 0}, "agent.version"),
        (twice, "agent.tools.1.name"),
        ({"mcp_servers": [MCP]}, "agent.mcp_servers.0"),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "docs"}]}, "agent.tools.0"),
        ({"tools": [{"type": "agent_toolset_20260401"}]}, "agent.tools.0"),
        ({"system": "x" * 100_001}, "agent.system"),
        ({"name": "other"}, "agent.name"),
        ({"update_mask": "tools"}, "agent.update_mask"),
    ]
    for change, path in rows:
        await refused(create(chat, {**form, **change}), path)
    with pytest.raises(anthropic.BadRequestError) as caught:
        await create(chat, {**form, "model": None})
    body: Any = caught.value.body
    assert body["error"]["details"]["error_code"] == "agent_model_required"
    sessions: Any = chat.client.beta.sessions
    for change, path in rows[4:8]:
        await refused(sessions.update(chat.id, agent=change), path)
    assert [one.id async for one in sessions.list()] == before
    assert types_of(await chat.history()) == []


async def test_the_agent_of_a_running_session_stays(running_system: System) -> None:
    chat = await Chat.open(running_system, tools=[OLD])
    sessions: Any = chat.client.beta.sessions
    async with chat.stream() as stream:
        await chat.send(message(SLOW))
        change = {"agent": {"tools": [NEW]}}
        await refused(sessions.update(chat.id, title="lost", **change), "agent: ", "is running")
        await sessions.update(chat.id, title="kept")
        await stream.until(is_over)
    found = await sessions.retrieve(chat.id)
    assert (found.title, [tool.name for tool in found.agent.tools]) == ("kept", ["decide"])
    await chat.client.beta.agents.archive(chat.agent_id)
    changed = await sessions.update(chat.id, agent={"tools": []})
    assert changed.agent.tools == []
    await sessions.archive(chat.id)
    await refused(sessions.update(chat.id, agent={"tools": [OLD]}), "archived")
