"""Processes die at random moments while several sessions run; every session completes."""

import asyncio
import contextlib
import random

import pytest

from tests.laws.crash_scenarios import GATE, answered
from tests.support.chat import INTERRUPT, Chat, Event, custom_tool, is_idle, patiently, revived
from tests.support.invariants import check_chains, check_history, check_operations, check_requests
from tests.support.model import Model, script, text, use
from tests.support.postgres import SessionPostgres
from tests.support.system import MODES, Mode, System, system_of
from tests.support.zygote import Zygote

SESSIONS = 3
KILLS = 12
SLOW = script(
    {
        "content": [text("slowly " * 30), use("note", text="n"), use("decide", text="x")],
        "chunks": 10,
        "chunk_delay_ms": 20,
    },
    {"content": [text("Done."), use("transfer", text="t")], "chunk_delay_ms": 20},
    "The end.",
)


async def talk(system: System, rng: random.Random) -> Chat:
    """Three messages; one session in two is interrupted somewhere."""
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    messages: list[str] = []
    for steps in (GATE, SLOW, "and the end"):
        messages.append(steps)
        talking = asyncio.create_task(chat.complete(messages, answered, early=rng.random() < 0.5))
        if rng.random() < 0.3:
            await asyncio.sleep(rng.random())
            await patiently(system, lambda: chat.send(INTERRUPT))
        await talking
    return chat


async def killing(system: System, rng: random.Random) -> None:
    names = [role.name for role in system.roles]
    for _ in range(KILLS):
        # Five deaths without progress end a turn: however slow a start was, there is time for some.
        await system.up.wait()
        await asyncio.sleep(rng.uniform(0.5, 1.5))
        with contextlib.suppress(ProcessLookupError):
            system.signal(rng.choice(names), 9)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", MODES)
async def test_random_deaths_change_nothing(
    mode: Mode, seed: int, zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    rng = random.Random(seed)
    async with system_of(mode, zygote, model, postgres) as system:
        await system.start()
        async with revived(system) as dead:
            killer = asyncio.create_task(killing(system, rng))
            chats = await asyncio.gather(*(talk(system, rng) for _ in range(SESSIONS)))
            await killer
            assert dead
            for chat in chats:
                history = await settled(chat)
                check_history(history)
                thread = await check_chains(chat)
                await check_operations(chat, thread)
                await check_requests(chat, thread, all_of_them=False)


async def settled(chat: Chat) -> list[Event]:
    """One more turn, so that nothing is left to be settled."""
    history = await patiently(chat.system, chat.history)
    said = [event["content"][0]["text"] for event in history if event["type"] == "user.message"]
    last = "a last word"
    history = await chat.complete([*said, last], answered)
    assert is_idle(history[-1])
    return history
