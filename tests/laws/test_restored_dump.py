"""A database that was dumped and restored elsewhere makes every request again (P4)."""

from random import Random

from cli.composition import STATEFUL
from tests.laws.windows import (
    COMPACTED,
    OUTPUT,
    answered,
    check_overflows,
    checkpoints,
    picture,
    tell,
    used,
    user,
    words,
)
from tests.support.chat import Chat, custom_tool, stop_of, types_of
from tests.support.model import Model, script, text, use
from tests.support.postgres import SessionPostgres
from tests.support.system import System, system_of
from tests.support.zygote import Zygote

LETTER = script({"content": [use("record", text="x")]}, {"content": [text("Recorded.")]})


async def requests_of(chat: Chat) -> dict[str, bytes]:
    """Every request that the session made, by its snapshot, as it is built now."""
    http, path = chat.system.http(), f"/v1/sessions/{chat.id}/context_snapshots"
    listed = await http.get(path, params={"limit": 100})
    assert listed.status_code == 200, listed.text
    bodies: dict[str, bytes] = {}
    for one in listed.json()["data"]:
        answer = await http.get(f"{path}/{one['id']}/request")
        assert answer.status_code == 200, answer.text
        bodies[one["id"]] = answer.content
    return bodies


async def test_a_restored_dump_makes_every_request_again(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    async with system_of("embedded", zygote, model, postgres) as system:
        await system.start()
        chat, made = await made_smaller(system)
        (checkpoint,) = await checkpoints(chat)
        await system.kill()
        async with postgres.copied(system.environment["COUNTERFOIL_CONTEXT_DATABASE_URL"]) as dsn:
            for name in STATEFUL:
                system.environment[f"COUNTERFOIL_{name.upper()}_DATABASE_URL"] = dsn
            await system.start()
            assert await requests_of(chat) == made
            events = await tell(chat, user("Go on"))
            assert stop_of(events[-1]) == "end_turn"
            assert await checkpoints(chat) == [checkpoint]
            assert types_of(await chat.history()).count(COMPACTED) == 1
            await check_overflows(chat)
            await system.kill()


async def made_smaller(system: System) -> tuple[Chat, dict[str, bytes]]:
    """A session with a transition and a checkpoint, and its requests."""
    random, model = Random(4), system.model
    chat = await Chat.open(system, model="offline", tools=[custom_tool("record")])
    asks = await tell(chat, user(LETTER))
    await tell(chat, answered(asks[-1]["stop_reason"]["event_ids"][0], words(random, 6_000)))
    for said in ([], [picture()], []):
        await tell(chat, user(words(random, 6_000), *said))
    # Without its image the history is still too large: a transition, and then a checkpoint.
    await model.window(OUTPUT + (await used(chat) - 1_334) * 2 // 3)
    await tell(chat, user("And now?"))
    made = await requests_of(chat)
    assert [asked.body for asked in await model.asked()] == list(made.values())
    assert [body for body in made.values() if b"was left out" in body]
    return chat, made
