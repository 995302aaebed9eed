"""The model's mistakes are its own to fix; a failing provider ends a turn, never a session."""

from typing import Any

import anthropic
import pytest

from tests.support.chat import Chat, Event, asks, custom_tool, is_over, message, result, types_of
from tests.support.invariants import check_everything
from tests.support.model import script, text, use
from tests.support.system import System

TOOL = custom_tool("record")


def results_of(events: list[Event]) -> list[Event]:
    return [event for event in events if event["type"] == "agent.tool_result"]


def errors_of(events: list[Event]) -> list[dict[str, Any]]:
    return [event["error"] for event in events if event["type"] == "session.error"]


def last_stop(events: list[Event]) -> str:
    return events[-1]["stop_reason"]["type"]


async def say(chat: Chat, *steps: Any) -> list[Event]:
    async with chat.stream() as stream:
        await chat.send(message(script(*steps)))
        return await stream.until(is_over)


MISTAKES = [
    ("unknown tool", {"content": [use("nobody")]}, "there is no tool"),
    ("input is no object", {"content": [{**use("record"), "input_raw": "[1]"}]}, "object"),
    ("input is no JSON", {"content": [{**use("record"), "input_raw": '{"text": '}]}, "JSON"),
    ("calls after end_turn", {"content": [use("record")], "stop_reason": "end_turn"}, "end_turn"),
]


@pytest.mark.parametrize(
    ("step", "words"), [m[1:] for m in MISTAKES], ids=[m[0].replace(" ", "-") for m in MISTAKES]
)
async def test_a_mistaken_call_becomes_an_error_result(
    running_system: System, step: dict[str, Any], words: str
) -> None:
    chat = await Chat.open(running_system, tools=[TOOL])
    events = await say(chat, step, {"content": [text("I see.")]})
    (found,) = results_of(events)
    assert found["is_error"] is True
    assert words in found["content"][0]["text"]
    assert last_stop(events) == "end_turn"
    asked = await check_everything(chat, await chat.history())
    assert asked[-1].messages[-1]["content"][0]["is_error"] is True


async def test_two_calls_of_one_id_are_refused_and_history_stays_sendable(
    running_system: System,
) -> None:
    chat = await Chat.open(running_system, tools=[TOOL])
    twins = [{**use("record", text=t), "id": "toolu_twin"} for t in ("a", "b")]
    events = await say(chat, {"content": twins}, {"content": [text("Sorry.")]})
    assert [found["is_error"] for found in results_of(events)] == [True, True]
    assert last_stop(events) == "end_turn"
    assert last_stop(await chat.say("go on")) == "end_turn"


async def test_a_tool_use_stop_without_a_call_ends_the_turn(running_system: System) -> None:
    chat = await Chat.open(running_system, tools=[TOOL])
    events = await say(chat, {"content": [text("Hm.")], "stop_reason": "tool_use"})
    assert last_stop(events) == "end_turn"
    assert not errors_of(events)


async def test_an_empty_answer_ends_the_turn_and_the_next_one_works(
    running_system: System,
) -> None:
    chat = await Chat.open(running_system)
    events = await say(chat, {"content": []})
    assert last_stop(events) == "end_turn"
    assert last_stop(await chat.say("still there?")) == "end_turn"


async def test_an_unknown_delta_repeats_the_request_once_without_streaming(
    running_system: System,
) -> None:
    chat = await Chat.open(running_system)
    events = await say(chat, {"content": [text("Hello there.")], "unknown_delta": True})
    messages = [event for event in events if event["type"] == "agent.message"]
    assert [m["content"][0]["text"] for m in messages] == ["Hello there."]
    asked = await running_system.model.asked(2, finished=True)
    assert [bool(one.record["stream"]) for one in asked] == [True, False]
    assert asked[0].messages == asked[1].messages


@pytest.mark.parametrize(
    ("fault", "type_"),
    [
        ({"error": {"status": 529}}, "model_overloaded_error"),
        ({"error": {"status": 429}}, "model_rate_limited_error"),
        ({"error": {"status": 500}}, "model_request_failed_error"),
        ({"error": {"status": 402}}, "billing_error"),
        ({"error": {"status": 400}}, "model_request_failed_error"),
        ({"cut": 1, "content": [text("a long text that is cut somewhere in its middle")]}, None),
        ({"disconnect": True}, None),
        ({"stream_error": {"after": 0}, "content": [text("x")]}, None),
    ],
    ids=["529", "429", "500", "402", "400", "cut", "disconnect", "stream-error"],
)
async def test_a_failing_provider_ends_the_turn_and_leaves_the_session_usable(
    running_system: System, fault: dict[str, Any], type_: str | None
) -> None:
    chat = await Chat.open(running_system)
    events = await say(chat, fault)
    *retried, error = errors_of(events)
    assert error["retry_status"] == {"type": "exhausted"}
    assert type_ is None or error["type"] == type_
    assert all(one["retry_status"] == {"type": "retrying"} for one in retried)
    assert last_stop(events) == "retries_exhausted"
    spans = [event for event in events if event["type"] == "span.model_request_end"]
    assert [span["is_error"] for span in spans] == [True] * (len(retried) + 1)
    assert "a turn ends with an error" in running_system.diagnosis()  # operators see it, too
    assert last_stop(await say(chat, "fine")) == "end_turn"


async def test_a_message_beyond_the_window_is_refused_and_taken_out_of_the_history(
    running_system: System,
) -> None:
    chat = await Chat.open(running_system, model="unknown-model")
    before = await chat.say("small")
    events = await chat.say("x" * 400_000)
    (error,) = errors_of(events)
    assert "window" in error["message"]
    assert last_stop(events) == "retries_exhausted"
    after = await chat.say("small again")
    assert last_stop(before) == last_stop(after) == "end_turn"
    asked = await running_system.model.asked(2, finished=True)
    assert len(asked) == 2
    assert b"xxxx" not in asked[1].body


@pytest.mark.full
async def test_a_hundred_rounds_end_a_turn(running_system: System) -> None:
    chat = await Chat.open(running_system, tools=[TOOL])
    steps = [{"content": [use("nobody")]}] * 120
    events = await say(chat, *steps)
    (error,) = errors_of(events)
    assert error["type"] == "tool_use_limit_reached_error"
    assert types_of(events).count("span.model_request_start") == 100
    assert last_stop(events) == "retries_exhausted"
    assert last_stop(await chat.say("enough")) == "end_turn"


SERVED_BY_NOBODY = [
    ("toolset", {"tools": [{"type": "agent_toolset_20260401"}]}, "tools.0"),
    (
        "mcp",
        {
            "tools": [{"type": "mcp_toolset", "mcp_server_name": "docs"}],
            "mcp_servers": [{"type": "url", "name": "docs", "url": "https://example.com/mcp"}],
        },
        "docs",
    ),
]


@pytest.mark.parametrize(
    ("definition", "name"),
    [row[1:] for row in SERVED_BY_NOBODY],
    ids=[row[0] for row in SERVED_BY_NOBODY],
)
async def test_an_agent_whose_tools_nobody_serves_is_saved_and_its_session_refused(
    running_system: System, definition: dict[str, Any], name: str
) -> None:
    client = running_system.client()
    agent = await client.beta.agents.create(name="later", model="m", **definition)
    environment = await client.beta.environments.create(name="somewhere")
    again = await client.beta.agents.retrieve(agent.id)
    assert [tool.type for tool in again.tools] == [t["type"] for t in definition["tools"]]
    with pytest.raises(anthropic.BadRequestError) as caught:
        await client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
    assert name in str(caught.value)


async def test_a_late_result_after_the_turn_is_refused(running_system: System) -> None:
    chat = await Chat.open(running_system, tools=[TOOL])
    async with chat.stream() as stream:
        await chat.send(message(script({"content": [use("record", text="a")]}, "done")))
        (use_id,) = (await stream.until(asks))[-1]["stop_reason"]["event_ids"]
        await chat.send(result(use_id, "ok"))
        await stream.until(is_over)
    with pytest.raises(anthropic.BadRequestError):
        await chat.send(result(use_id, "again"))
