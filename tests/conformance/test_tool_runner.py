"""The official SDK's tool runner follows a session and answers the calls it has tools for."""

import asyncio
from collections import Counter
from typing import Any

import anthropic
import pytest
from anthropic import beta_async_tool

from foundation.settings import DEVELOPMENT_KEY
from tests.conformance.relay import relay_to
from tests.support.chat import Chat, asks, custom_tool, message, stop_of
from tests.support.model import script, text, use
from tests.support.system import System

TOOLS = [custom_tool("weather"), custom_tool("clock")]
_IDLE_SECONDS = 0.3
_RUN_SECONDS = 60


class Tools:
    """Two tools that count how often they ran."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()

        @beta_async_tool
        async def weather(text: str) -> str:
            """The weather."""
            self.ran["weather"] += 1
            return f"25 degrees in {text}"

        @beta_async_tool
        async def clock(text: str) -> str:
            """The clock."""
            self.ran["clock"] += 1
            return f"06:00 in {text}"

        self.all: list[Any] = [weather, clock]


def results_of(history: list[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    """Name of the call, text and error mark of every result, in the order of the log."""
    names = {one["id"]: one["name"] for one in history if one["type"] == "agent.custom_tool_use"}
    return [
        (names[one["custom_tool_use_id"]], one["content"][0]["text"], one["is_error"])
        for one in history
        if one["type"] == "user.custom_tool_result"
    ]


async def test_two_calls_run_once_each_and_the_session_goes_on(system: System) -> None:
    chat = await Chat.open(system, tools=TOOLS)
    tools = Tools()
    said = script(
        {"content": [use("weather", text="Oslo"), use("clock", text="Oslo")]},
        {"content": [text("It is warm and early.")]},
    )
    await chat.send(message(said))
    runner = chat.client.beta.sessions.events.tool_runner(
        chat.id, tools=tools.all, max_idle=_IDLE_SECONDS
    )
    async with asyncio.timeout(_RUN_SECONDS):
        calls = [(call.name, call.posted, call.is_error) async for call in runner]
    assert calls == [("weather", True, False), ("clock", True, False)]
    assert tools.ran == {"weather": 1, "clock": 1}
    history = await chat.history()
    assert results_of(history) == [
        ("weather", "25 degrees in Oslo", False),
        ("clock", "06:00 in Oslo", False),
    ]
    assert stop_of(history[-1]) == "end_turn"
    assert "It is warm and early." in str(history)


async def test_a_call_that_came_while_the_network_was_cut_runs_once(system: System) -> None:
    chat = await Chat.open(system, tools=TOOLS)
    tools = Tools()
    await chat.send(message(one_after_the_other("cut")))
    async with (
        relay_to(system.rest_url) as relay,
        anthropic.AsyncAnthropic(
            base_url=relay.url, api_key=DEVELOPMENT_KEY, max_retries=0
        ) as client,
        asyncio.timeout(_RUN_SECONDS),
    ):
        runner = client.beta.sessions.events.tool_runner(
            chat.id, tools=tools.all, max_idle=_IDLE_SECONDS
        )
        names: list[str] = []
        async for call in runner:
            assert call.posted
            names.append(call.name)
            if call.name == "weather":
                await system.model.held("cut")
                assert relay.down() > 0
                async with chat.stream() as stream:
                    await system.model.release("cut")
                    await stream.until(asks)
                relay.up()
    assert names == ["weather", "clock"]
    await both_ran_once(chat, tools)


@pytest.mark.full
async def test_tools_run_once_though_the_server_died_between_them(system: System) -> None:
    chat = await Chat.open(system, tools=TOOLS)
    tools = Tools()
    await chat.send(message(one_after_the_other("killed")))
    runner = chat.client.beta.sessions.events.tool_runner(
        chat.id, tools=tools.all, max_idle=_IDLE_SECONDS
    )
    names: list[str] = []
    async with asyncio.timeout(_RUN_SECONDS):
        async for call in runner:
            assert call.posted
            names.append(call.name)
            if call.name == "weather":
                await system.model.held("killed")
                await system.kill()
                await system.model.release("killed")
                await system.start()
    assert names == ["weather", "clock"]
    await both_ran_once(chat, tools)


def one_after_the_other(gate: str) -> str:
    """The second call is asked for behind the result of the first, once the gate is open."""
    return script(
        {"content": [use("weather", text="Oslo")]},
        {"content": [use("clock", text="Oslo")], "hold": gate},
        {"content": [text("It is warm and early.")]},
    )


async def both_ran_once(chat: Chat, tools: Tools) -> None:
    """Each tool ran once, the log holds one result each, and the turn is over."""
    assert tools.ran == {"weather": 1, "clock": 1}
    history = await chat.history()
    assert [name for name, _, _ in results_of(history)] == ["weather", "clock"]
    assert stop_of(history[-1]) == "end_turn"
