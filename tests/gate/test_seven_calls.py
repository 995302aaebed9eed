"""The gate: seven parallel calls, answered early, late, twice and wrongly; the runner is killed."""

import asyncio
from typing import Any

import anthropic
import pytest

from tests.support.chat import (
    Chat,
    Event,
    asks,
    confirmation,
    custom_tool,
    is_idle,
    is_over,
    message,
    result,
    revived,
    stop_of,
    types_of,
)
from tests.support.invariants import check_everything
from tests.support.model import begins_with, script, text, use
from tests.support.system import System

CALLS = 7


async def parked(system: System) -> tuple[Chat, list[Event]]:
    """A session that waits for seven calls; their use events in order."""
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    steps = script(
        {"content": [text("Seven."), *(use("decide", text=str(n)) for n in range(CALLS))]},
        {"content": [text("All decided.")]},
    )
    events = await chat.say(steps)
    uses = [event for event in events if event["type"] == "agent.custom_tool_use"]
    assert [event["input"]["text"] for event in uses] == [str(n) for n in range(CALLS)]
    assert blocking(events[-1]) == [event["id"] for event in uses]
    return chat, uses


def blocking(event: Event) -> list[str]:
    assert asks(event), event
    return event["stop_reason"]["event_ids"]


async def test_seven_calls_resume_one_round(running_system: System) -> None:
    system = running_system
    chat, uses = await parked(system)
    ids = [event["id"] for event in uses]

    async with chat.stream() as stream:
        for place in (4, 0, 2):
            await chat.send(result(ids[place], f"answer {place}"))
            left = blocking((await stream.until(is_idle))[-1])
            assert left == [id for id in ids if id in left]
    assert left == [ids[place] for place in (1, 3, 5, 6)]

    await refused(chat, result(ids[1], "valid"), result(ids[1], "again"))
    await refused(chat, result(ids[1], "valid"), result(ids[0], "answered before"))
    await refused(chat, result(ids[1], "valid"), confirmation(ids[3]))
    await refused(chat, result(ids[1], "valid"), result("sevt_00000000000000000000000000", "x"))
    await refused(chat, result("toolu_01A", "x"))

    (queued,) = await chat.send(message("and then?"))
    assert queued["processed_at"] is None

    async with revived(system):
        await system.kill_runner()
        await system.up.wait()
    again = Chat(system, chat.id, system.client())

    async with again.stream() as stream:
        one, two = Chat(system, chat.id, system.client()), Chat(system, chat.id, system.client())
        await asyncio.gather(
            one.send(result(ids[6], "answer 6"), result(ids[1], "answer 1")),
            two.send(result(ids[5], "answer 5", is_error=True)),
            two.send(result(ids[3], "answer 3")),
        )
        await stream.until(is_over)

    history = await again.history()
    asked = await check_everything(again, history)
    assert len(asked) == 3, "the round was resumed once, then the queued message ran"
    begins_with(asked)
    results = asked[1].messages[-1]["content"]
    assert [block["content"][0]["text"] for block in results] == [f"answer {n}" for n in range(7)]
    assert [bool(block.get("is_error")) for block in results] == [n == 5 for n in range(7)]
    assert [m["role"] for m in asked[2].messages] == 2 * ["user", "assistant"] + ["user"]

    finals = [place for place, event in enumerate(history) if is_over(event)]
    assert finals == [len(history) - 1], "one final idle, at the very end"
    said = [event["content"][0]["text"] for event in history if event["type"] == "agent.message"]
    assert said[:2] == ["Seven.", "All decided."]
    assert len(said) == 3


async def refused(chat: Chat, *events: Event) -> None:
    """The batch is refused with 400 and leaves nothing behind."""
    before = await chat.history()
    with pytest.raises(anthropic.BadRequestError) as error:
        await chat.send(*events)
    body: Any = error.value.body
    assert body["error"]["type"] == "invalid_request_error"
    assert f"events.{len(events) - 1}" in body["error"]["message"]
    assert await chat.history() == before


async def test_results_before_the_idle_need_no_idle(running_system: System) -> None:
    chat = await Chat.open(running_system, tools=[custom_tool("decide")])
    steps = script(
        {"content": [use("decide", text="0"), text("wait"), use("decide", text="1")]},
        {"content": [text("Done.")]},
    )
    async with chat.stream() as stream:
        await chat.send(message(steps))
        uses = [
            (await stream.until(lambda e: e["type"] == "agent.custom_tool_use"))[-1]
            for _ in range(2)
        ]
        await chat.send(*(result(use["id"], "early") for use in uses))
        await stream.until(is_over)
    history = await chat.history()
    await check_everything(chat, history)
    stops = [stop_of(event) for event in history if is_idle(event)]
    assert stops in (["end_turn"], ["requires_action", "end_turn"]), types_of(history)


async def test_an_empty_result_is_a_result(running_system: System) -> None:
    chat = await Chat.open(running_system, tools=[custom_tool("decide")])
    events = await chat.say(script({"content": [use("decide", text="0")]}, "Done."))
    (id,) = blocking(events[-1])
    async with chat.stream() as stream:
        await chat.send({"type": "user.custom_tool_result", "custom_tool_use_id": id})
        await stream.until(is_over)
    asked = await check_everything(chat, await chat.history())
    assert asked[1].messages[-1]["content"][0]["tool_use_id"].startswith("toolu_")


async def test_a_system_message_rides_with_the_last_result(running_system: System) -> None:
    chat = await Chat.open(running_system, tools=[custom_tool("decide")])
    events = await chat.say(script({"content": [use("decide", text="0")]}, "Done."))
    (id,) = blocking(events[-1])
    aside = {"type": "system.message", "content": [{"type": "text", "text": "Be quick."}]}
    async with chat.stream() as stream:
        await chat.send(result(id, "fine"), aside)
        await stream.until(is_over)
    asked = await check_everything(chat, await chat.history())
    content = asked[1].messages[-1]["content"]
    assert content[0]["type"] == "tool_result"
    assert "Be quick." in content[1]["text"]
