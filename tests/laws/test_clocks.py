"""No clock orders history: processes whose clocks are hours and days apart, and jump when they are
started again, say and ask the same as one process whose clock is right (P27)."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from tests.laws.windows import COMPACTED, answered, check_overflows, tell, user, words
from tests.support import clocks
from tests.support.chat import Chat, custom_tool, types_of
from tests.support.model import Model, script, text, use
from tests.support.postgres import SessionPostgres
from tests.support.system import Mode, System, system_of
from tests.support.zygote import Zygote

WINDOW = 8_000
HOURS = (5, -49, 0.2, 25, -300, -3, 72, 8, -1)
"""How far processes are ahead: one after the other, and each anew whenever it starts."""


@asynccontextmanager
async def opened(
    mode: Mode, zygote: Zygote, model: Model, postgres: SessionPostgres
) -> AsyncGenerator[System]:
    told = {"COUNTERFOIL_MODEL_WINDOW_TOKENS": str(WINDOW)}
    async with system_of(mode, zygote, model, postgres, **told) as system:
        await model.window(WINDOW)
        yield system


async def talk(system: System, hours: tuple[float, ...]) -> tuple[list[str], list[bytes]]:
    """A session with calls and summaries, whose processes die while a call waits for its result:
    the types of its events, and what the provider was asked."""
    await start(system, hours)
    random, steps = (
        Random(27),
        [{"content": [use("record", text="x")]}, {"content": [text("Done")]}],
    )
    chat = await Chat.open(system, tools=[custom_tool("record")])
    for number in range(1, 4):
        asks = (await tell(chat, user(script(*steps))))[-1]
        await system.kill()
        await start(system, hours[number:] + hours[:number])
        (id,) = asks["stop_reason"]["event_ids"]
        await tell(chat, answered(id, words(random, 4_000)))
        await tell(chat, user(words(random, 3_000)))
    await check_overflows(chat)
    events = await chat.history()
    ahead = datetime.fromisoformat(events[-1]["processed_at"]) - datetime.now(UTC)
    # The ledger's clock went back twice, and the times in its log did not.
    assert round(ahead / timedelta(hours=1)) == round(max(hours[1:5]))
    return types_of(events), [one.body for one in await system.model.asked()]


async def start(system: System, hours: tuple[float, ...]) -> None:
    for role, ahead in zip(system.roles, hours, strict=False):
        role.environment[clocks.SECONDS] = str(ahead * 3_600)
    await system.start()


@pytest.mark.full
async def test_wrong_clocks_change_nothing_of_what_is_said_and_asked(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    async with opened("embedded", zygote, model, postgres) as system:
        said, asked = await talk(system, (0,) * len(HOURS))
    async with opened("split", zygote, model, postgres) as system:
        assert len(HOURS) == len(system.roles)
        assert await talk(system, HOURS) == (said, asked)
    assert COMPACTED in said
