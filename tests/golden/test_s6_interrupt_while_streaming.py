"""S6: an interrupt while the model streams: the announced message never appears."""

from tests.golden.scene import RUNNING, Line, idle, play, queued, shown
from tests.support.chat import INTERRUPT, message
from tests.support.model import script, text
from tests.support.system import System

HELD = script({"content": [text("This one waits.")], "hold": {"name": "mid", "after": 1}})
BEGINS = [
    queued("user.message", "m1"),
    *RUNNING,
    shown("user.message", "m1"),
    shown("span.model_request_start", "a"),
]


def ends() -> list[Line]:
    return [
        queued("user.interrupt", "i1"),
        shown("span.model_request_end", model_request_start_id="@a", is_error=True),
        shown("user.interrupt", "i1"),
        *idle("end_turn"),
    ]


async def test_an_announced_message_never_appears(running_system: System) -> None:
    async with play(running_system, deltas=("agent.message", "agent.thinking")) as scene:
        await scene.chat.send(message(HELD))
        await running_system.model.held("mid")
        await scene.shows(
            *BEGINS,
            shown("event_start", "msg9", event={"type": "agent.message", "id": "@msg9"}),
            shown("event_delta", "msg9"),
        )
        await scene.chat.send(INTERRUPT)
        # Deltas that were under way come before the span's end, and none behind it.
        events = await scene.shows(*ends())
    assert all(event.get("id") != scene.id("msg9") for event in events)


async def test_without_previews_only_the_span_shows_it(running_system: System) -> None:
    async with play(running_system) as scene:
        await scene.chat.send(message(HELD))
        await running_system.model.held("mid")
        await scene.shows(*BEGINS)
        await scene.chat.send(INTERRUPT)
        await scene.shows(*ends())
