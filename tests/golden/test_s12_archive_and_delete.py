"""S12: a session that is archived, idle or parked, and one that is deleted."""

import pytest

from tests.golden.scene import RUNNING, Line, idle, play, queued, shown
from tests.support.chat import Chat, custom_tool, message, result
from tests.support.invariants import check_chains
from tests.support.model import script, text, use
from tests.support.system import System

TERMINATED = [
    shown("session.thread_status_terminated", session_thread_id="@P", agent_name="tested"),
    shown("session.status_terminated", "last"),
]
TURN = [
    queued("user.message", "m1"),
    *RUNNING,
    shown("user.message", "m1"),
    shown("span.model_request_start", "a"),
]
SAID = script({"content": [text("It is done.")]})
ASKS = script({"content": [use("decide", text="1"), use("decide", text="2")]})


def parked() -> list[Line]:
    """A turn that waits for two answers."""
    return [
        *TURN,
        shown("agent.custom_tool_use", "t1"),
        shown("agent.custom_tool_use", "t2"),
        shown("span.model_request_end"),
        *idle("requires_action", "t1", "t2"),
    ]


async def test_an_idle_session_is_archived(running_system: System) -> None:
    async with play(running_system, finished=False) as scene:
        await scene.chat.send(message(SAID))
        said = shown("agent.message", content=[{"type": "text", "text": "It is done."}])
        end = shown("span.model_request_end")
        await scene.shows(*TURN, said, end, *idle("end_turn"))
        await scene.chat.client.beta.sessions.archive(scene.chat.id)
        await scene.shows(*TERMINATED)
        session = await scene.chat.client.beta.sessions.retrieve(scene.chat.id)
        assert session.status == "terminated"
        assert session.archived_at is not None


async def test_a_parked_session_is_archived(running_system: System) -> None:
    async with play(running_system, finished=False, tools=[custom_tool("decide")]) as scene:
        await scene.chat.send(message(ASKS))
        await scene.shows(*parked())
        await scene.chat.send(result(scene.id("t2"), "yes"), message("never processed"))
        await scene.shows(
            shown("user.custom_tool_result", custom_tool_use_id="@t2"),
            queued("user.message", "m2"),
            *idle("requires_action", "t1"),
        )
        await scene.chat.client.beta.sessions.archive(scene.chat.id)
        await scene.shows(
            shown("user.custom_tool_result", custom_tool_use_id="@t1", is_error=True),
            *TERMINATED,
        )


async def test_a_deleted_session_says_so_last(running_system: System) -> None:
    chat = await Chat.open(running_system)
    await chat.say(SAID)
    await check_chains(chat)
    async with chat.stream() as stream:
        await chat.client.beta.sessions.delete(chat.id)
        assert (await stream.next())["type"] == "session.deleted"
        with pytest.raises(StopAsyncIteration):
            await stream.next()
