"""What a summary covers stays covered when the session's model endpoint becomes another one,
however much more it would hold."""

from random import Random
from typing import Any

from tests.laws.windows import (
    COMPACTED,
    check_requests,
    checkpoints,
    newest,
    tell,
    user,
    with_window,
    words,
)
from tests.support.chat import Chat, custom_tool, stop_of, types_of
from tests.support.invariants import check_chains, check_history
from tests.support.model import Model, begins_with
from tests.support.postgres import SessionPostgres
from tests.support.zygote import Zygote

WIDE = 200_000


async def test_another_profile_has_the_summary_made_again_and_shows_nothing_that_it_covers(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    async with with_window(12_000, zygote, model, postgres) as system:
        chat, random = await Chat.open(system, tools=[custom_tool("one")]), Random(4)
        said = list[str]()
        while COMPACTED not in types_of(await chat.history()):
            said.append(words(random, 3_000))
            assert stop_of((await tell(chat, user(said[-1])))[-1]) == "end_turn"
        before = len(await newest(chat, 0))
        last = (await newest(chat, before - 1))[0].body.decode()
        covered = [one for one in said if one not in last]
        assert covered
        (first,) = await checkpoints(chat)

        await system.kill()
        system.environment["COUNTERFOIL_MODEL_PROFILE"] = "conservative"
        system.environment["COUNTERFOIL_MODEL_WINDOW_TOKENS"] = str(WIDE)
        await system.start()
        await model.window(WIDE)
        sessions: Any = chat.client.beta.sessions
        # An update resolves anew what the session pinned of its endpoint.
        await sessions.update(chat.id, agent={"tools": [custom_tool("two")]})
        events = await tell(chat, user("Go on"))
        assert types_of(events).count(COMPACTED) == 1
        await tell(chat, user("And on"))
        asked = await newest(chat, before)
        assert len(asked) == 2
        begins_with(asked)
        for one in asked:
            assert [said for said in covered if said in one.body.decode()] == []
            assert said[-1] in one.body.decode()
        made = await checkpoints(chat)
        assert made[0] == first
        assert len(made) == 2
        check_history(await chat.history())
        await check_requests(chat, await check_chains(chat))
