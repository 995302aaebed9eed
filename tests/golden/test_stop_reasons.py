"""Every stop reason on the wire: what clients see, what is stored, what the model is asked next."""

import asyncio
import json
from typing import Any

import pytest
from counterfoil.transcript.v1 import transcript_pb2 as pb

from tests.golden.scene import RUNNING, Line, Scene, idle, play, queued, shown
from tests.support.chat import Chat, custom_tool, message, revived
from tests.support.invariants import check_chains, check_everything
from tests.support.model import Asked, begins_with, script, text, use
from tests.support.system import System

BEGINS = [queued("user.message", "m1"), *RUNNING, shown("user.message", "m1")]
TOOL = custom_tool("record")
EXHAUSTED = ("model_request_failed_error", {"type": "exhausted"})


def answers(span: str) -> list[Line]:
    return [
        shown("span.model_request_start", span),
        shown("agent.message"),
        shown("span.model_request_end", model_request_start_id=f"@{span}", is_error=False),
    ]


def paused(number: int, **more: Any) -> dict[str, Any]:
    return {"content": [text(f"Part {number}.")], "stop_reason": "pause_turn", **more}


def cut(number: int) -> dict[str, Any]:
    return {"content": [text(f"Piece {number}")], "stop_reason": "max_tokens"}


async def entries(scene: Scene) -> list[pb.Entry]:
    thread = await check_chains(scene.chat)
    request = pb.ListEntriesRequest(thread=thread)
    return list((await scene.chat.system.transcript.ListEntries(request)).entries)


async def kinds(scene: Scene) -> list[str]:
    """The kinds of the stored entries, in order."""
    names = [pb.TranscriptEntryKind.Name(entry.kind) for entry in await entries(scene)]
    return [name.removeprefix("TRANSCRIPT_ENTRY_KIND_").lower() for name in names]


async def asked(scene: Scene, number: int) -> list[Asked]:
    found = await scene.chat.system.model.asked(number, finished=True)
    assert len(found) == number
    begins_with(found)
    return found


def said(one: Asked) -> list[tuple[str, str]]:
    """Role and text of each message."""
    return [(m["role"], m["content"][0].get("text", "")) for m in one.messages]


async def fails(scene: Scene, *lines: Line) -> str:
    """These lines, an exhausted error and its idle; then the session takes input. The error's
    text."""
    events = await scene.shows(*lines, shown("session.error"), *idle("retries_exhausted"))
    (error,) = [event["error"] for event in events if event["type"] == "session.error"]
    assert (error["type"], error["retry_status"]) == EXHAUSTED
    await scene.chat.send(message(script("Here again.")))
    again = [queued("user.message", "n"), *RUNNING, shown("user.message", "n"), *answers("z")]
    await scene.shows(*again, *idle("end_turn"))
    return error["message"]


async def test_a_paused_answer_is_sent_back_as_it_is(running_system: System) -> None:
    async with play(running_system) as scene:
        steps = [paused(1), paused(2), {"content": [text("Done.")]}]
        await scene.chat.send(message(script(*steps)))
        await scene.shows(*BEGINS, *answers("a"), *answers("b"), *answers("c"), *idle("end_turn"))
        assert await kinds(scene) == ["input", "answer", "answer", "answer"]
        last = (await asked(scene, 3))[-1]
        assert said(last)[1:] == [("assistant", "Part 1."), ("assistant", "Part 2.")]


async def test_after_five_continuations_a_pause_ends_the_turn(running_system: System) -> None:
    async with play(running_system) as scene:
        await scene.chat.send(message(script(*[paused(n) for n in range(9)])))
        spans = [line for name in "abcdef" for line in answers(name)]
        assert "5 continuations" in await fails(scene, *BEGINS, *spans)
        await asked(scene, 7)


async def test_another_owner_counts_the_same_pauses(system: System) -> None:
    """The runner dies between the second paused answer and the third."""
    await system.start()
    chat = await Chat.open(system)
    steps = [paused(1), paused(2), paused(3, hold="third"), *[paused(n) for n in range(4, 9)]]
    async with revived(system):
        talking = asyncio.create_task(chat.complete([script(*steps)]))
        await system.model.held("third")
        await system.kill_runner()
        await system.model.release("third")
        history = await talking
    found = await check_everything(chat, history)
    begins_with(found)
    assert len(found) == 7
    parts = [event["content"][0]["text"] for event in history if event["type"] == "agent.message"]
    assert parts == [f"Part {n}." for n in range(1, 7)]
    (error,) = [event["error"] for event in history if event["type"] == "session.error"]
    assert "5 continuations" in error["message"]


async def test_a_cut_answer_goes_on_behind_a_word_that_nobody_sees(
    running_system: System,
) -> None:
    async with play(running_system) as scene:
        await scene.chat.send(message(script(cut(1), cut(2), {"content": [text("Done.")]})))
        await scene.shows(*BEGINS, *answers("a"), *answers("b"), *answers("c"), *idle("end_turn"))
        stored = ["input", "answer", "continue", "answer", "continue", "answer"]
        assert await kinds(scene) == stored
        last = (await asked(scene, 3))[-1]
        assert said(last)[1:] == [
            ("assistant", "Piece 1"),
            ("user", "continue"),
            ("assistant", "Piece 2"),
            ("user", "continue"),
        ]
        assert "user.message" not in [e["type"] for e in (await scene.chat.history())[3:]]


async def test_after_three_continuations_a_cut_ends_the_turn(running_system: System) -> None:
    async with play(running_system) as scene:
        await scene.chat.send(message(script(*[cut(n) for n in range(6)])))
        spans = [line for name in "abcd" for line in answers(name)]
        assert "3 continuations" in await fails(scene, *BEGINS, *spans)
        await asked(scene, 5)


THOUGHTS = {
    # what the offline model, as the provider, would refuse to take back
    "unsigned": {"type": "thinking", "thinking": "And then", "signature": ""},
    "signed": {"type": "thinking", "thinking": "And then"},
    "redacted": {"type": "redacted_thinking"},
}


@pytest.mark.parametrize("thought", THOUGHTS.values(), ids=THOUGHTS)
async def test_thinking_that_was_cut_off_is_stored_and_not_sent_back(
    running_system: System, thought: dict[str, Any]
) -> None:
    async with play(running_system) as scene:
        step = {"content": [text("Piece 1"), thought], "stop_reason": "max_tokens"}
        await scene.chat.send(message(script(step, {"content": [text("Done.")]})))
        await scene.shows(
            *BEGINS,
            shown("span.model_request_start", "a"),
            shown("agent.message"),
            shown("agent.thinking"),
            shown("span.model_request_end", model_request_start_id="@a", is_error=False),
            *answers("b"),
            *idle("end_turn"),
        )
        stored = next(entry for entry in await entries(scene) if entry.content.envelope)
        kinds_stored = [json.loads(block)["type"] for block in stored.content.blocks]
        assert kinds_stored == ["text", thought["type"]]
        last = (await asked(scene, 2))[-1]
        assert last.messages[1]["content"] == [text("Piece 1")]
        assert said(last)[1:] == [("assistant", "Piece 1"), ("user", "continue")]


async def test_a_cut_call_gets_an_error_result_instead_of_the_word(
    running_system: System,
) -> None:
    async with play(running_system, tools=[TOOL]) as scene:
        step = {"content": [use("record", text="a")], "stop_reason": "max_tokens"}
        await scene.chat.send(message(script(step, {"content": [text("I see.")]})))
        await scene.shows(
            *BEGINS,
            shown("span.model_request_start", "a"),
            shown("agent.tool_use", "u"),
            shown("span.model_request_end"),
            shown("agent.tool_result", tool_use_id="@u", is_error=True),
            *answers("b"),
            *idle("end_turn"),
        )
        assert await kinds(scene) == ["input", "answer", "results", "answer"]
        await asked(scene, 2)


REFUSALS = [
    (
        {"type": "refusal", "category": "cyber", "explanation": "Not that."},
        {"type": "refusal", "category": "cyber", "explanation": "Not that."},
    ),
    (None, {"type": "refusal", "category": None, "explanation": None}),
]


def refused(details: Any) -> list[Line]:
    stop = {"stop_reason": {"type": "refusal"}, "stop_details": details}
    return [
        shown("session.thread_status_idle", **stop),
        shown("session.usage"),
        shown("session.status_idle", **stop),
    ]


@pytest.mark.parametrize(("sent", "details"), REFUSALS, ids=["explained", "bare"])
async def test_a_refusal_ends_the_turn_and_says_why(
    running_system: System, sent: Any, details: Any
) -> None:
    async with play(running_system) as scene:
        step = {"content": [text("No.")], "stop_reason": "refusal", "stop_details": sent}
        await scene.chat.send(message(script(step)))
        await scene.shows(*BEGINS, *answers("a"), *refused(details))
        await asked(scene, 1)


async def test_a_refusal_with_a_call_runs_nothing_and_asks_nothing_more(
    running_system: System,
) -> None:
    async with play(running_system, tools=[TOOL]) as scene:
        details = {"type": "refusal", "category": "bio", "explanation": None}
        calls = {"content": [use("record", text="a")], "stop_details": details}
        await scene.chat.send(message(script({**calls, "stop_reason": "refusal"})))
        await scene.shows(
            *BEGINS,
            shown("span.model_request_start", "a"),
            shown("agent.tool_use", "u"),
            shown("span.model_request_end"),
            shown("agent.tool_result", tool_use_id="@u", is_error=True),
            *refused(details),
        )
        await asked(scene, 1)


@pytest.mark.parametrize("calls", [False, True], ids=["text", "call"])
async def test_a_full_window_ends_the_turn_and_leaves_the_session_usable(
    running_system: System, *, calls: bool
) -> None:
    async with play(running_system, tools=[TOOL]) as scene:
        blocks = [text("x" * 50), *([use("record", text="a")] if calls else [])]
        step = {"content": blocks, "stop_reason": "model_context_window_exceeded"}
        await scene.chat.send(message(script(step)))
        lines = [*BEGINS, *answers("a")]
        if calls:
            lines.insert(-1, shown("agent.tool_use", "u"))
            lines.append(shown("agent.tool_result", tool_use_id="@u", is_error=True))
        assert "taken out of the history" in await fails(scene, *lines)
        _, second = await scene.chat.system.model.asked(2, finished=True)
        assert b"xxxx" not in second.body
        assert "withheld" in await kinds(scene)


UNKNOWN = ["tool_use", "never_heard_of", None]


@pytest.mark.parametrize("stop_reason", UNKNOWN, ids=map(str, UNKNOWN))
async def test_an_answer_without_calls_and_any_other_stop_reason_ends_the_turn(
    running_system: System, stop_reason: str | None
) -> None:
    async with play(running_system) as scene:
        step = {"content": [text("Hm.")], "stop_reason": stop_reason}
        await scene.chat.send(message(script(step)))
        await scene.shows(*BEGINS, *answers("a"), *idle("end_turn"))
        await asked(scene, 1)
