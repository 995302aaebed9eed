"""S13: the session's own tools change between turns, and while a turn is parked."""

import json
from typing import Any

from tests.golden.scene import RUNNING, Line, Scene, idle, play, queued, shown
from tests.support.chat import custom_tool, message, result
from tests.support.model import script, text, use
from tests.support.system import System

OLD, NEW = custom_tool("decide"), custom_tool("measure")
SAID = script({"content": [text("It is done.")]})
ASKS = script({"content": [use("decide", text="1")]}, {"content": [text("Decided.")]})


def turn(label: str) -> list[Line]:
    """The beginning of a turn."""
    return [
        queued("user.message", label),
        *RUNNING,
        shown("user.message", label),
        shown("span.model_request_start"),
    ]


SAYS = [shown("agent.message"), shown("span.model_request_end"), *idle("end_turn")]


async def update_tools(scene: Scene) -> Any:
    sessions: Any = scene.chat.client.beta.sessions
    return await sessions.update(scene.chat.id, agent={"tools": [NEW]})


async def change_tools(scene: Scene) -> None:
    """The tools become `NEW`, in one event that carries the whole agent."""
    session = await update_tools(scene)
    [event] = await scene.shows(shown("session.updated", "u"))
    agent = session.agent.to_dict(mode="json")
    assert [tool["name"] for tool in agent["tools"]] == ["measure"]
    assert event["agent"] == agent
    assert set(event) == {"id", "type", "agent", "processed_at"}


async def tools_asked(system: System) -> list[list[str]]:
    """Names of the tools in each request that the model got."""
    asked = await system.model.asked()
    return [[tool["name"] for tool in json.loads(one.body).get("tools", [])] for one in asked]


async def test_the_next_turn_has_the_new_tools(running_system: System) -> None:
    async with play(running_system, tools=[OLD]) as scene:
        await scene.chat.send(message(SAID))
        await scene.shows(*turn("m1"), *SAYS)
        await change_tools(scene)
        await update_tools(scene)  # no change, no event
        await scene.chat.send(message(SAID))
        await scene.shows(*turn("m2"), *SAYS)
        names = await tools_asked(running_system)
        assert [found[:1] for found in names] == [["decide"], ["measure"]]
        agent = await scene.chat.client.beta.agents.retrieve(scene.chat.agent_id)
        assert [tool.to_dict()["name"] for tool in agent.tools] == ["decide"]


async def test_a_parked_turn_keeps_its_tools(running_system: System) -> None:
    async with play(running_system, tools=[OLD]) as scene:
        await scene.chat.send(message(ASKS))
        await scene.shows(
            *turn("m1"),
            shown("agent.custom_tool_use", "t1"),
            shown("span.model_request_end"),
            *idle("requires_action", "t1"),
        )
        await change_tools(scene)
        await scene.chat.send(result(scene.id("t1"), "yes"))
        await scene.shows(
            shown("user.custom_tool_result", custom_tool_use_id="@t1"),
            *RUNNING,
            shown("span.model_request_start"),
            *SAYS,
        )
        await scene.chat.send(message(SAID))
        await scene.shows(*turn("m2"), *SAYS)
        names = await tools_asked(running_system)
        assert [found[:1] for found in names] == [["decide"], ["decide"], ["measure"]]
