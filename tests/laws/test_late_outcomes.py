"""A call that was reported as interrupted finished after all: the model is told, at the tail."""

import json

import pytest
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2

from foundation.outcomes import MAY_HAVE_RUN_TEXT
from tests.support.chat import INTERRUPT, Chat, is_idle, is_over, message, revived
from tests.support.invariants import check_everything
from tests.support.model import Asked, begins_with, script, text, use
from tests.support.system import System
from tests.support.waiting import eventually

DONE = "note done: the important one"
FIRST = script(
    {"content": [use("note", text="the important one")]}, {"content": [text("Never said.")]}
)
NEXT = script({"content": [text("I see.")]})
NOTE_BEGINS = "A note from the platform"


async def interrupted(chat: Chat) -> None:
    """A turn that is interrupted while its call runs; the call ends when effects are released."""
    chat.system.effects.hold()
    async with chat.stream() as stream:
        await chat.send(message(FIRST))
        await chat.system.effects.wait(1)
        await chat.send(INTERRUPT)
        await stream.until(is_idle)


async def finishes_late(chat: Chat) -> None:
    """The executor ends, and the journal keeps what it said."""
    chat.system.effects.release()
    log = await chat.system.turns.VerifyLog(turn_pb2.VerifyLogRequest(session_id=chat.id))
    request = journal_pb2.ListLateOutcomesRequest(thread=log.thread)

    async def is_late() -> bool:
        return bool((await chat.system.journal.ListLateOutcomes(request)).late_outcomes)

    await eventually(is_late)


def texts(asked: Asked) -> list[str]:
    """What the newest request says in texts, without results, in order."""
    blocks = [block for one in asked.messages for block in one["content"]]
    return [block["text"] for block in blocks if block["type"] == "text"]


def notes(asked: Asked) -> list[str]:
    return [said for said in texts(asked) if said.startswith(NOTE_BEGINS)]


def results(asked: Asked) -> list[str]:
    blocks = [block for one in asked.messages for block in one["content"]]
    return [b["content"][0]["text"] for b in blocks if b["type"] == "tool_result"]


async def check(chat: Chat) -> Asked:
    """Everything holds, requests only grew; the newest."""
    asked = await check_everything(chat, await chat.history())
    begins_with(asked)
    return asked[-1]


async def test_the_model_is_told_once_at_the_tail_and_never_in_place(
    running_system: System,
) -> None:
    chat = await Chat.open(running_system)
    await interrupted(chat)
    await finishes_late(chat)
    await chat.say(NEXT)
    await chat.say(NEXT)
    asked = await check(chat)
    assert results(asked) == [MAY_HAVE_RUN_TEXT]
    (note,) = notes(asked)
    (use_id,) = [
        block["id"]
        for one in asked.messages
        for block in one["content"]
        if block["type"] == "tool_use"
    ]
    assert json.dumps(use_id) in note
    assert note.endswith(json.dumps([DONE]))
    said = texts(asked)
    assert said[said.index(note) + 1] == NEXT, "the note comes before the new input"
    assert sum(DONE in json.dumps(event) for event in await chat.history()) == 0


async def test_an_outcome_that_comes_within_a_turn_waits_for_the_next_one(
    running_system: System,
) -> None:
    chat = await Chat.open(running_system)
    await interrupted(chat)
    steps = script({"content": [text("This one waits.")], "hold": "late"})
    async with chat.stream() as stream:
        await chat.send(message(steps))
        await running_system.model.held("late")
        await finishes_late(chat)
        await running_system.model.release("late")
        await stream.until(is_over)
    assert notes(await check(chat)) == []
    await chat.say(NEXT)
    assert len(notes(await check(chat))) == 1


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("commit", ["transcript.append", "journal.note_late_outcomes"])
async def test_a_death_between_any_two_steps_repeats_harmlessly(
    system: System, commit: str, side: str
) -> None:
    await system.start()
    chat = await Chat.open(system)
    await interrupted(chat)
    await finishes_late(chat)
    await system.kill()
    await system.start(f"{commit}.{side}=kill@1")
    async with revived(system) as dead:
        await chat.complete([FIRST, NEXT])
        assert dead
    await chat.say(NEXT)
    asked = await check(chat)
    assert len(notes(asked)) == 1
    assert texts(asked).count(NEXT) == 2


async def test_a_note_survives_the_loss_of_the_turn_that_brought_it(system: System) -> None:
    """The turn is interrupted before its first request: the note stays, and is not repeated."""
    await system.start()
    chat = await Chat.open(system)
    await interrupted(chat)
    await finishes_late(chat)
    async with chat.stream() as stream:
        await chat.send(message("never mind"), INTERRUPT)
        await stream.until(is_idle)
    await chat.say(NEXT)
    said = texts(await check(chat))
    assert [s.startswith(NOTE_BEGINS) for s in said[-3:]] == [True, False, False]
    assert said[-2:] == ["never mind", NEXT]
