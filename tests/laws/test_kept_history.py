"""A long thread's kept bytes are a copy: whoever dies while they are written has lost nothing, and
the next process goes on with the copy or without."""

import pytest

from services.context.keeping import ENTRIES_MIN
from tests.support.chat import Chat, revived
from tests.support.invariants import check_everything
from tests.support.model import Model, begins_with
from tests.support.postgres import SessionPostgres
from tests.support.system import system_of
from tests.support.waiting import eventually
from tests.support.zygote import Zygote

MESSAGES = [f"message {number}" for number in range(ENTRIES_MIN // 2 + 4)]


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_death_while_a_long_history_is_kept_changes_nothing(
    side: str, zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    async with system_of("embedded", zygote, model, postgres) as system:
        await system.start(f"context.keep_prefix.{side}=kill")
        async with revived(system) as dead:
            chat = await Chat.open(system)
            await chat.complete(MESSAGES)
            await eventually(lambda: _has_died(dead))
            history = await chat.complete([*MESSAGES, "thanks"])
        assert len(dead) == 1
        said = [one["content"][0]["text"] for one in history if one["type"] == "user.message"]
        assert said == [*MESSAGES, "thanks"]
        begins_with(await check_everything(chat, history))


async def _has_died(dead: list[str]) -> bool:
    return bool(dead)
