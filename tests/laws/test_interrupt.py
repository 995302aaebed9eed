"""Interrupts in every state of a turn, and in both orders against its commits."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anthropic
import pytest
from counterfoil.journal.v1 import journal_pb2

from foundation.outcomes import MAY_HAVE_RUN_TEXT, NOT_RUN_TEXT
from tests.support.chat import (
    INTERRUPT,
    Chat,
    Event,
    asks,
    confirmation,
    custom_tool,
    is_idle,
    is_over,
    message,
    result,
    revived,
    stop_of,
    types_of,
)
from tests.support.invariants import check_chains, check_everything
from tests.support.model import Asked, Model, begins_with, script, text, use
from tests.support.postgres import SessionPostgres
from tests.support.system import System
from tests.support.system_local import Pauses, local_system
from tests.support.zygote import Zygote

END = ["session.thread_status_idle", "session.usage", "session.status_idle"]
BEGIN = ["session.thread_status_running", "session.status_running"]
SPAN = ["span.model_request_start", "span.model_request_end"]
TOOLS = [custom_tool("decide")]
GOES_ON = script("Goes on.")


def held(gate: str, **more: Any) -> str:
    return script({"content": [text("This one waits.")], "hold": gate, **more}, "Later.")


async def finish(chat: Chat) -> list[Asked]:
    """A further turn works, and everything holds; what the provider was asked."""
    await chat.say(GOES_ON)
    history = await chat.history()
    asked = await check_everything(chat, history)
    begins_with(asked)
    assert [event["type"] for event in history].count("user.interrupt") >= 1
    return asked


def texts(event: Event) -> list[str]:
    return [block["text"] for block in event["content"]]


def results_of(asked: Asked) -> list[tuple[str, bool]]:
    """The newest tool results of a request: text and error flag."""
    for one in reversed(asked.messages):
        found = [block for block in one["content"] if block["type"] == "tool_result"]
        if found:
            return [(b["content"][0]["text"], bool(b.get("is_error"))) for b in found]
    return []


# Nothing runs or waits.


async def test_an_interrupt_of_an_idle_session_is_marked_and_does_nothing(
    running_system: System,
) -> None:
    chat = await Chat.open(running_system)
    (echo,) = await chat.send(INTERRUPT)
    assert echo["processed_at"] is not None
    assert types_of(await chat.history()) == ["user.interrupt"]
    await chat.say("hello")
    before = await chat.history()
    await chat.send(INTERRUPT, INTERRUPT)
    after = await chat.history()
    assert types_of(after) == [*types_of(before), "user.interrupt", "user.interrupt"]


# Queued, nothing running or parked.


async def test_an_interrupted_queued_turn_asks_no_model(running_system: System) -> None:
    chat = await Chat.open(running_system)
    async with chat.stream() as stream:
        await chat.send(message("never mind"), INTERRUPT)
        events = await stream.until(is_idle)
    assert types_of(events) == [
        "user.message*",
        "user.interrupt*",
        *BEGIN,
        "user.message",
        "user.interrupt",
        *END,
    ]
    assert stop_of(events[-1]) == "end_turn"
    assert await running_system.model.asked() == []
    (asked,) = await finish(chat)
    said = [block["text"] for one in asked.messages for block in one["content"]]
    assert said == ["never mind", GOES_ON]


# Running.


async def test_an_interrupt_while_the_model_is_asked(running_system: System) -> None:
    chat = await Chat.open(running_system)
    async with chat.stream() as stream:
        await chat.send(message(held("asked")))
        await running_system.model.held("asked")
        (echo,) = await chat.send(INTERRUPT)
        assert echo["processed_at"] is None
        events = await stream.until(is_idle)
    assert types_of(events) == [
        "user.message*",
        *BEGIN,
        "user.message",
        SPAN[0],
        "user.interrupt*",
        SPAN[1],
        "user.interrupt",
        *END,
    ]
    assert events[6]["is_error"]
    assert stop_of(events[-1]) == "end_turn"
    (asked,) = await running_system.model.asked(1, finished=True)
    assert asked.record["disposition"] == "disconnected"
    await finish(chat)


async def test_an_interrupt_while_the_answer_streams(running_system: System) -> None:
    chat = await Chat.open(running_system)
    steps = held("mid", hold={"name": "mid", "after": 2}, chunks=6)
    async with chat.stream("agent.message") as stream:
        await chat.send(message(steps))
        await running_system.model.held("mid")
        await stream.until(lambda event: event["type"] == "event_delta")
        await chat.send(INTERRUPT)
        events = await stream.until(is_idle)
    kinds = [event["type"] for event in events]
    ended = kinds.index("span.model_request_end")
    assert events[ended]["is_error"]
    assert "event_delta" not in kinds[ended:], "previews end with their span"
    assert "agent.message" not in kinds
    await finish(chat)


async def test_an_interrupt_while_a_platform_tool_runs(running_system: System) -> None:
    system = running_system
    chat = await Chat.open(system, tools=TOOLS)
    steps = script({"content": [use("note", text="slow"), use("transfer", text="x")]})
    system.effects.hold()
    async with chat.stream() as stream:
        await chat.send(message(steps))
        await system.effects.wait(1)
        await chat.send(INTERRUPT)
        events = await stream.until(is_idle)
    assert stop_of(events[-1]) == "end_turn"
    closed = [texts(event) for event in events if event["type"] == "agent.tool_result"]
    assert closed == [[MAY_HAVE_RUN_TEXT], [NOT_RUN_TEXT]]
    system.effects.release()
    asked = await finish(chat)
    assert results_of(asked[-1]) == [(MAY_HAVE_RUN_TEXT, True), (NOT_RUN_TEXT, True)]
    assert [effect.tool for effect in system.effects.all] == ["note"]
    await late_outcome(chat)


async def late_outcome(chat: Chat) -> None:
    """The outcome that came after the closing is kept beside it."""
    thread = await check_chains(chat)
    request = journal_pb2.InspectOperationsRequest(thread=thread, reader="test", purpose="late")
    async with asyncio.timeout(20):
        while True:
            found = (await chat.system.journal.InspectOperations(request)).operations
            (note,) = [operation for operation in found if operation.tool_name == "note"]
            assert note.state == journal_pb2.OPERATION_STATE_AMBIGUOUS
            if note.has_late_outcome:
                return
            await asyncio.sleep(0.02)


async def test_an_interrupt_keeps_answers_that_came_before(running_system: System) -> None:
    system = running_system
    chat = await Chat.open(system, tools=TOOLS)
    calls = [use("decide", text="a"), use("note", text="b"), use("decide", text="c")]
    system.effects.hold()
    async with chat.stream() as stream:
        await chat.send(message(script({"content": calls})))
        await system.effects.wait(1)
        await stream.until(lambda event: event["type"] == "span.model_request_end")
        uses = [e["id"] for e in stream.events if e["type"] == "agent.custom_tool_use"]
        await chat.send(result(uses[0], "decided before"))
        await chat.send(INTERRUPT)
        events = await stream.until(is_idle)
        with pytest.raises(anthropic.BadRequestError):
            await chat.send(result(uses[1], "too late"))
    system.effects.release()
    assert stop_of(events[-1]) == "end_turn"
    asked = await finish(chat)
    assert results_of(asked[-1]) == [
        ("decided before", False),
        (MAY_HAVE_RUN_TEXT, True),
        (NOT_RUN_TEXT, True),
    ]


async def test_an_interrupt_of_a_resuming_turn(running_system: System) -> None:
    system = running_system
    chat = await Chat.open(system, tools=TOOLS)
    steps = script(
        {"content": [use("decide", text="a")]}, {"content": [text("never")], "hold": "resumed"}
    )
    events = await chat.say(steps)
    async with chat.stream() as stream:
        await chat.send(result(events[-1]["stop_reason"]["event_ids"][0], "yes"))
        await system.model.held("resumed")
        await chat.send(INTERRUPT)
        events = await stream.until(is_idle)
    assert stop_of(events[-1]) == "end_turn"
    assert "agent.message" not in [event["type"] for event in events]
    asked = await finish(chat)
    assert results_of(asked[-1]) == [("yes", False)]


async def test_an_interrupt_survives_the_runner(system: System) -> None:
    await system.start()
    chat = await Chat.open(system)
    async with revived(system):
        await chat.send(message(held("crashed")))
        await system.model.held("crashed")
        await chat.send(INTERRUPT)
        await system.kill_runner()
        await system.up.wait()
        history = await chat.complete([held("crashed")])
    assert [stop_of(event) for event in history if is_idle(event)] == ["end_turn"]
    assert len(await system.model.asked()) == 1, "a flag that was set asks no model again"
    await finish(Chat(system, chat.id, system.client()))


# Parked.


async def parked(system: System) -> tuple[Chat, list[Event]]:
    """A session that waits for two decisions and a confirmation; a note has run."""
    chat = await Chat.open(system, tools=TOOLS)
    calls = [
        use("decide", text="a"),
        use("note", text="b"),
        use("transfer", text="c"),
        use("decide", text="d"),
    ]
    events = await chat.say(script({"content": calls}, "Later."))
    assert asks(events[-1])
    return chat, [event for event in events if event["type"].endswith("tool_use")]


async def test_an_interrupt_of_a_parked_turn_closes_every_call(running_system: System) -> None:
    chat, (a, _, c, d) = await parked(running_system)
    async with chat.stream() as stream:
        await chat.send(result(a["id"], "decided"))
        await chat.send(confirmation(c["id"]))
        await stream.until(is_idle)
        await stream.until(is_idle)
        (echo,) = await chat.send(INTERRUPT)
        events = await stream.until(is_idle)
    assert echo["processed_at"] is not None
    assert types_of(events) == [
        "user.interrupt",
        "user.tool_confirmation",
        "agent.tool_result",
        "user.custom_tool_result",
        *END,
    ]
    assert events[2]["tool_use_id"] == c["id"], "allowed, and not run yet"
    assert events[3]["custom_tool_use_id"] == d["id"]
    assert [texts(event) for event in events[2:4]] == 2 * [[NOT_RUN_TEXT]]
    assert stop_of(events[-1]) == "end_turn"
    for late in (result(d["id"], "late"), confirmation(c["id"]), result(a["id"], "again")):
        with pytest.raises(anthropic.BadRequestError):
            await chat.send(late)
    asked = await finish(chat)
    assert results_of(asked[-1]) == [
        ("decided", False),
        ("note done: b", False),
        (NOT_RUN_TEXT, True),
        (NOT_RUN_TEXT, True),
    ]
    assert [effect.tool for effect in running_system.effects.all] == ["note"]


async def test_an_interrupt_of_a_settling_turn_does_nothing(running_system: System) -> None:
    chat, _ = await parked(running_system)
    await chat.send(INTERRUPT)
    before = types_of(await chat.history())
    assert before[-3:] == END
    (echo,) = await chat.send(INTERRUPT)
    assert echo["processed_at"] is not None
    assert types_of(await chat.history()) == [*before, "user.interrupt"]
    asked = await finish(chat)
    assert len(asked) == 2


async def test_settling_publishes_nothing(running_system: System) -> None:
    chat, _ = await parked(running_system)
    await chat.send(INTERRUPT)
    events = await chat.say("next")
    assert types_of(events) == [
        "user.message*",
        *BEGIN,
        "user.message",
        SPAN[0],
        "agent.message",
        SPAN[1],
        *END,
    ]
    await finish(chat)


# Other input.


@pytest.mark.parametrize("behind", [False, True], ids=["input before", "input behind"])
async def test_queued_input_runs_behind_the_interrupt(running_system: System, behind: bool) -> None:
    system = running_system
    chat = await Chat.open(system)
    async with chat.stream() as stream:
        await chat.send(message(held("queue")))
        await system.model.held("queue")
        pair = (
            [INTERRUPT, message(script("Second."))]
            if behind
            else [message(script("Second.")), INTERRUPT]
        )
        for event in pair:
            await chat.send(event)
        first = await stream.until(is_idle)
        second = await stream.until(is_idle)
    assert stop_of(first[-1]) == "end_turn"
    assert [e["type"] for e in first].count("session.status_running") == 1
    assert types_of(second)[:3] == [*BEGIN, "user.message"]
    assert stop_of(second[-1]) == "end_turn"
    await finish(chat)


async def test_queued_input_runs_behind_a_parked_interrupt(running_system: System) -> None:
    chat, _ = await parked(running_system)
    await chat.send(message(script("Waited.")))
    async with chat.stream() as stream:
        await chat.send(INTERRUPT)
        first = await stream.until(is_idle)
        second = await stream.until(is_idle)
    assert stop_of(first[-1]) == "end_turn"
    assert types_of(second)[:3] == [*BEGIN, "user.message"]
    await finish(chat)


# Both orders against the commit.


@pytest.fixture
async def local(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> AsyncGenerator[tuple[System, Pauses]]:
    async with local_system(zygote, model, postgres) as made:
        yield made


async def raced(chat: Chat, steps: str, pauses: Pauses, name: str, hit: int) -> list[Event]:
    """Interrupts while the owner waits at a failpoint; the events until the session is over."""
    pause = pauses.at(name, hit)
    async with chat.stream() as stream:
        await chat.send(message(steps))
        await pause.reached()
        interrupt = asyncio.create_task(chat.send(INTERRUPT))
        if name.endswith(".after"):
            await interrupt
        pause.go()
        await interrupt
        events = await stream.until(is_over)
        if events[-1]["id"] == stream.events[-1]["id"] and not seen(events):
            events += await stream.until(lambda event: event["type"] == "user.interrupt")
    return events


def seen(events: Sequence[Event]) -> bool:
    return any(event["type"] == "user.interrupt" for event in events)


async def test_interrupt_before_the_final_commit(local: tuple[System, Pauses]) -> None:
    chat = await Chat.open(local[0])
    events = await raced(chat, script("Said."), local[1], "transcript.append.after", 2)
    assert types_of(events) == [
        "user.message*",
        *BEGIN,
        "user.message",
        SPAN[0],
        "user.interrupt*",
        "agent.message",
        SPAN[1],
        "user.interrupt",
        *END,
    ]
    await finish(chat)


async def test_interrupt_behind_the_final_commit(local: tuple[System, Pauses]) -> None:
    chat = await Chat.open(local[0])
    events = await raced(chat, script("Said."), local[1], "ledger.append_round.before", 1)
    assert types_of(events) == [
        "user.message*",
        *BEGIN,
        "user.message",
        SPAN[0],
        "agent.message",
        SPAN[1],
        *END,
        "user.interrupt",
    ]
    await finish(chat)


@pytest.mark.parametrize(
    "name", ["transcript.append.after", "ledger.append_round.before"], ids=["first", "behind"]
)
async def test_interrupt_against_the_parking_commit(
    local: tuple[System, Pauses], name: str
) -> None:
    chat = await Chat.open(local[0], tools=TOOLS)
    steps = script({"content": [use("decide", text="a")]})
    events = await raced(chat, steps, local[1], name, 2 if name.startswith("transcript") else 1)
    kinds = types_of(events)
    assert kinds.count("session.status_idle") == (1 if name.startswith("transcript") else 2)
    (closed,) = [event for event in events if event["type"] == "user.custom_tool_result"]
    assert texts(closed) == [NOT_RUN_TEXT]
    with pytest.raises(anthropic.BadRequestError):
        await chat.send(result(closed["custom_tool_use_id"], "late"))
    asked = await finish(chat)
    assert results_of(asked[-1]) == [(NOT_RUN_TEXT, True)]


@pytest.mark.parametrize("name", ["journal.start.before", "journal.start.after"])
async def test_interrupt_against_the_start_of_a_call(
    local: tuple[System, Pauses], name: str
) -> None:
    system, pauses = local
    chat = await Chat.open(system, tools=TOOLS)
    pause = pauses.at(name)
    async with chat.stream() as stream:
        await chat.send(message(script({"content": [use("note", text="a")]})))
        await pause.reached()
        await chat.send(INTERRUPT)
        events = await stream.until(is_idle)
    pause.go()
    started = name.endswith(".after")
    (closed,) = [event for event in events if event["type"] == "agent.tool_result"]
    assert texts(closed) == [MAY_HAVE_RUN_TEXT if started else NOT_RUN_TEXT]
    if started:
        await system.effects.wait(1)
        await late_outcome(chat)
    asked = await finish(chat)
    assert len(system.effects.all) == started, "what was reported as not run never runs"
    assert results_of(asked[-1]) == [(texts(closed)[0], True)]


async def test_interrupt_before_the_model_is_asked(local: tuple[System, Pauses]) -> None:
    chat = await Chat.open(local[0])
    events = await raced(chat, script("Said."), local[1], "context.prepare.after", 1)
    assert SPAN[0] not in types_of(events)
    assert await local[0].model.asked() == []
    await finish(chat)


async def test_interrupt_between_results_and_their_entry(local: tuple[System, Pauses]) -> None:
    system, pauses = local
    chat = await Chat.open(system, tools=TOOLS)
    steps = script({"content": [use("decide", text="a")]}, "Never said.")
    events = await chat.say(steps)
    pause = pauses.at("transcript.append.before")
    async with chat.stream() as stream:
        await chat.send(result(events[-1]["stop_reason"]["event_ids"][0], "kept"))
        await pause.reached()
        await chat.send(INTERRUPT)
        pause.go()
        await stream.until(is_over)
    asked = await finish(chat)
    assert results_of(asked[-1]) == [("kept", False)]
    assert len(asked) == 2, "the resumed round was interrupted before it was asked"
