"""What an agent says of its model reaches the provider in every request; what the provider counts
reaches the client, also of requests that failed."""

import json
from typing import Any

from tests.support.chat import Chat, Event, custom_tool, result
from tests.support.invariants import check_everything, check_usage
from tests.support.model import begins_with, script, text, use
from tests.support.system import System

MODEL = {"id": "claude-opus-4-6", "effort": "low", "speed": "fast", "inference_geo": "us"}
STEPS = ({"content": [use("decide", text="1")]}, {"content": [use("decide", text="2")]}, "Done.")


def usage(scale: int) -> dict[str, Any]:
    """What a scripted request is said to have used."""
    return {
        "input_tokens": scale,
        "output_tokens": 2 * scale,
        "cache_read_input_tokens": 3 * scale,
        "cache_creation_input_tokens": 9 * scale,
        "cache_creation": {
            "ephemeral_5m_input_tokens": 4 * scale,
            "ephemeral_1h_input_tokens": 5 * scale,
        },
        "server_tool_use": {"web_search_requests": scale, "web_fetch_requests": 2 * scale},
        "speed": "fast",
    }


def answer(event: Event) -> Event:
    return result(event["id"], "yes")


async def test_the_models_options_are_in_every_request_and_its_prefix_is_cached(
    running_system: System,
) -> None:
    chat = await Chat.open(running_system, tools=[custom_tool("decide")], model=MODEL)
    history = await chat.complete([script(*STEPS)], answer)
    asked = await check_everything(chat, history)
    assert len(asked) == 3
    begins_with(asked)
    for one in asked:
        body = json.loads(one.body)
        assert body["output_config"] == {"effort": "low"}
        assert (body["speed"], body["inference_geo"]) == ("fast", "us")
        assert body["cache_control"] == {"type": "ephemeral"}
        assert one.record["headers"]["anthropic-beta"] == "fast-mode-2026-02-01"
        head, _, _ = one.body.partition(b'"messages":')
        assert asked[0].body.startswith(head)
    # What the model measured: each request shares all messages of the one before, and the usage
    # says so.
    shared = [one.record["prefix_bytes"] for one in asked]
    assert shared == [0, *(len(before.region) for before in asked[:-1])]
    ends = [event for event in history if event["type"] == "span.model_request_end"]
    read = [end["model_usage"]["cache_read_input_tokens"] for end in ends]
    assert read == [size // 4 for size in shared]
    assert (await used(chat))["cache_read_input_tokens"] == sum(read) > 0


async def test_without_options_the_provider_decides(running_system: System) -> None:
    chat = await Chat.open(running_system)
    (asked,) = await check_everything(chat, await chat.complete([script("Hello.")]))
    unset = {"output_config", "speed", "inference_geo"}
    assert not unset & json.loads(asked.body).keys()
    assert "anthropic-beta" not in asked.record["headers"]


async def test_a_session_tells_the_sum_of_its_requests_failed_ones_included(
    running_system: System,
) -> None:
    chat = await Chat.open(running_system, tools=[custom_tool("decide")])
    asks = {"content": [use("decide", text="1")], "usage": usage(10)}
    # Its first attempt breaks off, after it had told what it cost until then.
    broken = {**asks, "stream_error": {"after": 1}, "times": 1}
    steps = [broken, {"content": [text("Done.")], "usage": usage(1)}]
    history = await chat.complete([script(*steps)], answer)
    check_usage(history)
    ends = [event for event in history if event["type"] == "span.model_request_end"]
    assert [end["is_error"] for end in ends] == [True, False, False]
    assert all(end["model_usage"]["speed"] == "fast" for end in ends)
    told = await used(chat)
    (said,) = [event["usage"] for event in history if event["type"] == "session.usage"][-1:]
    assert said == told
    spent = sum(end["model_usage"]["input_tokens"] for end in ends)
    assert spent == 10 + 10 + 1
    assert told["input_tokens"] == spent
    assert told["cache_read_input_tokens"] == 3 * spent
    assert told["cache_creation"] == {
        "ephemeral_5m_input_tokens": 4 * spent,
        "ephemeral_1h_input_tokens": 5 * spent,
    }
    assert told["server_tool_use"] == {
        "web_search_requests": spent,
        "web_fetch_requests": 2 * spent,
    }
    assert told["active_seconds"] > 0


async def used(chat: Chat) -> dict[str, Any]:
    """The session's usage, as it is read."""
    session = await chat.client.beta.sessions.retrieve(chat.id)
    assert session.usage is not None
    return session.usage.to_dict(mode="json")
