"""No thread is bricked: whatever an owner left behind, the next one finds a way out.

Each test was a way in without a way out once.
"""

import asyncio
import os
import signal

import pytest
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import reference_pb2

from tests.support.chat import (
    INTERRUPT,
    Chat,
    Event,
    confirmation,
    custom_tool,
    is_over,
    message,
    result,
)
from tests.support.invariants import check_everything
from tests.support.model import script, text, use
from tests.support.system import System

TOOL = custom_tool("record")
TAKEOVERS_MAX = 5
LEASES_SECONDS = 25.0
"""More than two leases live: with the defect, the third takeover is on its way."""


def stop_of_last(events: list[Event]) -> str:
    return events[-1]["stop_reason"]["type"]


async def fine(chat: Chat) -> None:
    """The session takes a message and answers it."""
    async with chat.stream() as stream:
        await chat.send(message(script({"content": [text("all is well")]})))
        events = await stream.until(is_over)
    assert stop_of_last(events) == "end_turn"
    said = [e["content"][0]["text"] for e in events if e["type"] == "agent.message"]
    assert said == ["all is well"]


async def over(chat: Chat) -> list[Event]:
    """The history once the newest turn is over."""
    async with chat.stream() as stream:
        events = await chat.history()
        while not any(map(is_over, events)):
            events.append(await stream.next())
    return await chat.history()


async def test_an_answer_that_nobody_could_publish_is_taken_out_after_quarantine(
    system: System,
) -> None:
    """Every owner dies between storing the answer and publishing it."""
    if system.mode == "split":
        pytest.skip("the runner outlives the ledger there, and repeats the write")
    deadly = "ledger.append_round.before=kill@1"
    await system.start()
    chat = await Chat.open(system, tools=[TOOL])
    await system.kill()
    await system.start(deadly)
    await chat.send(message(script({"content": [text("never published")]})))
    for number in range(TAKEOVERS_MAX + 1):
        await system.died(60)
        await system.start(deadly if number < TAKEOVERS_MAX else "")
    history = await over(chat)
    assert [e["error"]["retry_status"]["type"] for e in history if "error" in e] == ["exhausted"]
    await fine(chat)
    asked = await check_everything(chat, await chat.history())
    assert b"never published" not in asked[-1].region.replace(
        b'[{\\"content\\": [{\\"type\\": \\"text\\", \\"text\\": \\"never published\\"}]}]', b""
    )


async def test_a_withheld_turn_fails_although_its_owner_died_before_saying_so(
    system: System,
) -> None:
    await system.start()
    chat = await Chat.open(system, model="unknown-model")
    await fine(chat)
    await system.kill()
    await system.start("ledger.commit_turn.before=kill@1")
    asked_before = len(await system.model.asked())
    await chat.send(message("x" * 400_000))
    await system.died()
    await system.start()
    async with chat.stream() as stream:
        events = await chat.history()
        while not (is_over(events[-1]) and any("error" in e for e in events)):
            events.append(await stream.next())
    assert stop_of_last(events) == "retries_exhausted"
    assert len(await system.model.asked()) == asked_before
    await fine(chat)


async def test_an_epoch_that_the_ledger_lost_is_raised_again(running_system: System) -> None:
    """As after a restored backup of the ledger alone."""
    chat = await Chat.open(running_system)
    await fine(chat)
    verified = await running_system.turns.VerifyLog(turn_pb2.VerifyLogRequest(session_id=chat.id))
    ahead = reference_pb2.Fence(thread=verified.thread, epoch=1000)
    await running_system.transcript.Fence(
        transcript_pb2.FenceRequest(fence=ahead, turn_id="turn_of_the_future")
    )
    await fine(chat)


@pytest.mark.full
async def test_a_stopped_runner_gets_no_claims_and_blames_no_turn(running_system: System) -> None:
    """A runner that is alive but does nothing (SIGSTOP) must not bring a turn into quarantine."""
    if running_system.mode == "embedded":
        pytest.skip("one process cannot stop only its runner")
    chat = await Chat.open(running_system)
    await fine(chat)
    pid = running_system.pid("runner")
    os.kill(pid, signal.SIGSTOP)
    try:
        await chat.send(message(script({"content": [text("late")]})))
        # Nothing happens meanwhile that could be awaited: that is what is tested.
        await asyncio.sleep(LEASES_SECONDS)
        assert not any("error" in event for event in await chat.history())
    finally:
        os.kill(pid, signal.SIGCONT)
    async with chat.stream() as stream:
        events = await chat.history()
        while sum(map(is_over, events)) < 2:
            events.append(await stream.next())
    assert stop_of_last(events) == "end_turn"


@pytest.mark.parametrize("name", ["no\u0000body", "x" * 300, ""])
async def test_a_tool_name_that_no_database_likes_is_only_an_unknown_tool(
    running_system: System, name: str
) -> None:
    chat = await Chat.open(running_system, tools=[TOOL])
    async with chat.stream() as stream:
        await chat.send(message(script({"content": [use(name)]}, {"content": [text("ok")]})))
        events = await stream.until(is_over)
    assert stop_of_last(events) in ("end_turn", "retries_exhausted")
    await fine(chat)


async def test_a_denial_before_an_interrupt_is_kept_while_the_turn_runs(
    running_system: System,
) -> None:
    running_system.effects.hold()
    chat = await Chat.open(running_system, tools=[TOOL])
    uses = [use("transfer", text="a"), use("note", text="n"), use("record", text="b")]
    async with chat.stream() as stream:
        await chat.send(message(script({"content": uses}, {"content": [text("end")]})))
        events = await stream.until(lambda e: e["type"] == "agent.custom_tool_use")
        await running_system.effects.wait(1)
        ask = next(e for e in events if e.get("evaluated_permission") == "ask")
        await chat.send(confirmation(ask["id"], "deny", deny_message="no way"))
        await chat.send(result(events[-1]["id"], "kept"))
        await chat.send(INTERRUPT)
        events += await stream.until(is_over)
        running_system.effects.release()
    (denied,) = [e for e in events if e.get("tool_use_id") == ask["id"] and "content" in e]
    assert "no way" in denied["content"][0]["text"]
    await fine(chat)
    asked = await running_system.model.asked()
    results = asked[-1].messages[2]["content"]
    assert "no way" in results[0]["content"][0]["text"]
    assert results[2]["content"][0]["text"] == "kept"


async def test_results_vouch_for_the_answers_that_they_hold(running_system: System) -> None:
    """Answers that came before the turn could park lie behind the claim's own log point."""
    running_system.effects.hold()
    chat = await Chat.open(running_system, tools=[TOOL])
    uses = [use("note", text="n"), use("record", text="b")]
    async with chat.stream() as stream:
        await chat.send(message(script({"content": uses}, {"content": [text("end")]})))
        events = await stream.until(lambda e: e["type"] == "agent.custom_tool_use")
        await running_system.effects.wait(1)
        await chat.send(result(events[-1]["id"], "early"))
        running_system.effects.release()
        await stream.until(is_over)
    verified = await running_system.turns.VerifyLog(turn_pb2.VerifyLogRequest(session_id=chat.id))
    found = await running_system.transcript.ListEntries(
        transcript_pb2.ListEntriesRequest(thread=verified.thread)
    )
    points = {
        entry.kind: entry.content.log_point.position
        for entry in found.entries
        if entry.content.HasField("log_point")
    }
    results, input_ = (
        points[transcript_pb2.TRANSCRIPT_ENTRY_KIND_RESULTS],
        points[transcript_pb2.TRANSCRIPT_ENTRY_KIND_INPUT],
    )
    assert results > input_
