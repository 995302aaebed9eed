"""S7: an interrupt on a barrier: every call is closed, then the idle; a later answer is 400."""

import anthropic
import pytest

from foundation.outcomes import NOT_RUN_TEXT
from tests.golden.scene import RUNNING, idle, play, queued, shown
from tests.support.chat import INTERRUPT, confirmation, custom_tool, message, result
from tests.support.model import script, text, use
from tests.support.system import System

TOOLS = [custom_tool("decide")]
ASKS = script(
    {"content": [use("decide", text="1"), use("transfer", text="2")]},
    {"content": [text("Never asked for.")]},
)
CLOSED = {"content": [{"type": "text", "text": NOT_RUN_TEXT}], "is_error": True}


async def test_every_call_is_closed_before_the_idle(running_system: System) -> None:
    system = running_system
    async with play(system, tools=TOOLS) as scene:
        await scene.chat.send(message(ASKS))
        await scene.shows(
            queued("user.message", "m1"),
            *RUNNING,
            shown("user.message", "m1"),
            shown("span.model_request_start", "b"),
            shown("agent.custom_tool_use", "t1", name="decide"),
            shown(
                "agent.tool_use",
                "u1",
                name="transfer",
                evaluated_permission="ask",
                evaluation={"type": "always_ask"},
            ),
            shown("span.model_request_end", model_request_start_id="@b"),
            *idle("requires_action", "t1", "u1"),
        )
        await scene.chat.send(INTERRUPT)
        await scene.shows(
            shown("user.interrupt"),
            shown("user.custom_tool_result", custom_tool_use_id="@t1", **CLOSED),
            shown("agent.tool_result", tool_use_id="@u1", **CLOSED),
            *idle("end_turn"),
        )
        for late in (result(scene.id("t1"), "too late"), confirmation(scene.id("u1"))):
            with pytest.raises(anthropic.BadRequestError, match=r"events\.0"):
                await scene.chat.send(late)
        # The idle session takes the next message as if nothing had been.
        await scene.chat.send(message("hello"))
        await scene.shows(
            queued("user.message", "m2"),
            *RUNNING,
            shown("user.message", "m2"),
            shown("span.model_request_start", "c"),
            shown("agent.message"),
            shown("span.model_request_end", model_request_start_id="@c"),
            *idle("end_turn"),
        )
    assert system.effects.all == []
