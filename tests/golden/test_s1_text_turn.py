"""S1: a plain text turn, with and without previews, with and without thinking."""

import pytest

from tests.golden.scene import RUNNING, Line, idle, many, play, queued, shown
from tests.support.chat import message
from tests.support.model import script, text
from tests.support.system import System


def turn(*between: Line, thinks: bool = False) -> list[Line]:
    """A turn that answers `msg1`, with previews `between` the span's start and its end."""
    thought = [shown("agent.thinking")] if thinks else []
    return [
        queued("user.message", "m1", content=[{"type": "text", "text": SAID}]),
        *RUNNING,
        shown("user.message", "m1", content=[{"type": "text", "text": SAID}]),
        shown("span.model_request_start", "a"),
        *between,
        *thought,
        shown("agent.message", "msg1", content=[{"type": "text", "text": "It is done."}]),
        shown("span.model_request_end", "b", model_request_start_id="@a", is_error=False),
        *idle("end_turn"),
    ]


# Slow enough that previews, which an answer never waits for, are there before it.
SAID = script({"content": [text("It is done.")], "chunks": 3, "chunk_delay_ms": 150})
THINKS = script({"content": [{"type": "thinking", "thinking": "Hm."}, text("It is done.")]})


async def test_a_turn_without_previews(running_system: System) -> None:
    async with play(running_system) as scene:
        await scene.chat.send(message(SAID))
        await scene.shows(*turn())


async def test_a_turn_with_previews(running_system: System) -> None:
    async with play(running_system, deltas=("agent.message",)) as scene:
        await scene.chat.send(message(SAID))
        events = await scene.shows(
            *turn(
                shown("event_start", "msg1", event={"type": "agent.message", "id": "@msg1"}),
                many("event_delta", "msg1"),
            )
        )
    deltas = [event["delta"] for event in events if event["type"] == "event_delta"]
    assert {delta["type"] for delta in deltas} == {"content_delta"}
    assert "".join(delta["content"]["text"] for delta in deltas) == "It is done."


async def test_a_turn_that_thinks(running_system: System) -> None:
    async with play(running_system) as scene:
        await scene.chat.send(message(THINKS))
        lines = turn(thinks=True)
        for place in (0, 3):
            lines[place] = Line("user.message", "m1", queued=place == 0)
        events = await scene.shows(*lines)
    (thought,) = [event for event in events if event["type"] == "agent.thinking"]
    assert set(thought) == {"id", "type", "processed_at"}


@pytest.mark.parametrize("number", [2, 3])
async def test_queued_messages_share_one_beginning_and_one_end(
    running_system: System, number: int
) -> None:
    """Between turns that end by themselves the session stays running."""
    async with play(running_system) as scene:
        labels = [f"m{n}" for n in range(number)]
        await scene.chat.send(*(message(f"number {label}") for label in labels))
        lines = [queued("user.message", label) for label in labels] + RUNNING
        for label in labels:
            lines += [
                shown("user.message", label),
                shown("span.model_request_start", f"a {label}"),
                shown("agent.message"),
                shown("span.model_request_end", model_request_start_id=f"@a {label}"),
            ]
        await scene.shows(*lines, *idle("end_turn"))
