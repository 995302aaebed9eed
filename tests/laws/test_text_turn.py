"""A text turn through everything: golden order, exact replay, and a kill in the middle."""

import pytest

from tests.support.chat import Chat, is_idle, message, revived, start_anyhow, types_of
from tests.support.invariants import check_everything
from tests.support.model import begins_with
from tests.support.system import System

GOLDEN = [
    "user.message*",
    "session.thread_status_running",
    "session.status_running",
    "user.message",
    "span.model_request_start",
    "agent.message",
    "span.model_request_end",
    "session.thread_status_idle",
    "session.usage",
    "session.status_idle",
]

KILLS = (
    "ledger.submit_events.after",
    "transcript.append.before",
    "journal.start_model_call.after",
    "ledger.append_round.before",
    "ledger.append_round.after",
)


async def test_two_turns_come_in_the_golden_order_and_replay_exactly(
    running_system: System,
) -> None:
    chat = await Chat.open(running_system, system_prompt="Be brief.")
    async with chat.stream() as stream:
        await chat.send(message("one"))
        first = await stream.until(is_idle)
        await chat.send(message("two"))
        second = await stream.until(is_idle)
    assert types_of(first) == GOLDEN
    assert types_of(second) == GOLDEN

    queued, processed = first[0], first[3]
    assert queued["processed_at"] is None
    assert {**queued, "processed_at": processed["processed_at"]} == processed
    start, end, thread_idle, usage, idle = first[4], first[6], first[7], first[8], first[9]
    assert end["model_request_start_id"] == start["id"]
    assert not end["is_error"]
    assert end["model_usage"]["output_tokens"] > 0
    assert thread_idle["stop_reason"] == {"type": "end_turn"}
    assert thread_idle["session_thread_id"] == first[1]["session_thread_id"]
    assert usage["usage"]["output_tokens"] == end["model_usage"]["output_tokens"]
    assert idle["stop_reason"] == {"type": "end_turn"}
    assert idle["stop_details"] is None

    history = await chat.history()
    assert types_of(history) == 2 * GOLDEN[1:]
    assert [event for event in first if event is not queued] == history[: len(GOLDEN) - 1]
    asked = await check_everything(chat, history)
    assert len(asked) == 2
    begins_with(asked)
    assert asked[0].messages == [{"role": "user", "content": [{"type": "text", "text": "one"}]}]


@pytest.mark.parametrize("failpoint", KILLS)
async def test_a_killed_text_turn_completes(system: System, failpoint: str) -> None:
    assert not await start_anyhow(system, f"{failpoint}=kill@2")
    async with revived(system) as dead:
        chat = await Chat.open(system)
        history = await chat.complete(["one", "two"], lambda _: None)
    assert len(dead) == 1
    asked = await check_everything(chat, history)
    # In a split system the runner lives on and repeats the write instead of the request.
    lost = failpoint == "transcript.append.before" and system.mode == "embedded"
    assert len(asked) == 2 + lost
    begins_with(asked)
