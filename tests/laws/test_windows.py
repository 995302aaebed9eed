"""Every request fits the provider's window, and one that does not, because the window is smaller
than anybody said, is made to fit: without its images, then with a summary; else the turn ends and
the session goes on."""

from random import Random

import pytest

from tests.laws.windows import (
    COMPACTED,
    checkpoints,
    errors,
    play,
    room_left,
    with_window,
)
from tests.support.chat import Chat, custom_tool, types_of
from tests.support.invariants import check_everything
from tests.support.model import Model
from tests.support.postgres import SessionPostgres
from tests.support.zygote import Zygote

TOOL = custom_tool("record")


@pytest.mark.parametrize("window", [6_000, 12_000, 40_000])
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.full) for n in (2, 3, 4))])
async def test_no_request_of_a_random_session_is_over_the_window(
    zygote: Zygote, model: Model, postgres: SessionPostgres, seed: int, window: int
) -> None:
    async with with_window(window, zygote, model, postgres) as system:
        chat = await Chat.open(system, tools=[TOOL])
        await play(chat, Random(f"{seed} {window}"), window, turns=12)
        events = await chat.history()
        asked = await check_everything(chat, events)
        assert {one.record["status"] for one in asked} == {200}
        assert min(room_left(one, window) for one in asked) >= 0
        print(window, len(asked), sorted(room_left(one, window) for one in asked)[:5], errors(events), types_of(events).count(COMPACTED))
        assert len(await checkpoints(chat)) == types_of(events).count(COMPACTED) > 0
