"""What single requests may hold adds up: no sum of them ends a session."""

import anthropic
import pytest

from tests.support.chat import Chat, custom_tool, is_idle, is_over, message, result
from tests.support.model import script, text, use
from tests.support.system import System

LARGE = "x" * 24_000_000
"""Three of them do not fit in one message between services."""

TOOL = custom_tool("record")


@pytest.mark.full
async def test_a_history_larger_than_a_message_is_read_on(running_system: System) -> None:
    """Each message is too large for the window and withheld, which says to send a shorter one."""
    chat = await Chat.open(running_system)
    chat.client.timeout = 60
    for _ in range(3):
        async with chat.stream() as stream:
            await chat.send(message(LARGE))
            events = await stream.until(is_over)
        assert "session.error" in [event["type"] for event in events]
    async with chat.stream() as stream:
        await chat.send(message(script({"content": [text("still here")]})))
        events = await stream.until(is_over)
    assert events[-1]["stop_reason"] == {"type": "end_turn"}


@pytest.mark.full
async def test_answers_larger_than_a_message_are_refused_one_by_one(
    running_system: System,
) -> None:
    """Each fits in a request, all of them in no claim: the last one is refused, and may be sent
    again with less."""
    chat = await Chat.open(running_system, tools=[TOOL])
    chat.client.timeout = 60
    steps = ({"content": [use("record"), use("record")]}, {"content": [text("done")]})
    async with chat.stream() as stream:
        await chat.send(message(script(*steps)))
        events = await stream.until(is_idle)
        one, two = events[-1]["stop_reason"]["event_ids"]
        await chat.send(result(one, LARGE))
        with pytest.raises(anthropic.APIStatusError) as refused:
            await chat.send(result(two, LARGE))
        assert refused.value.status_code == 413
        await chat.send(result(two, "short"))
        # More than the window holds: the turn ends with an error, and the session goes on.
        await stream.until(is_over)
        await chat.send(message(script({"content": [text("still here")]})))
        events = await stream.until(is_over)
    assert events[-1]["stop_reason"] == {"type": "end_turn"}
