"""A session of two hundred rounds: parallel calls, images, large results, summaries, an overflow, a
`kill -9` after every twenty rounds and a fork. What is sent changes only where a record says so,
and every request can be made again."""

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tests.laws.windows import answered, picture, with_window, words
from tests.support.chat import Chat, Event, asks, custom_tool, message, types_of
from tests.support.invariants import check_chains, check_history
from tests.support.model import Asked, Model, script, text, use
from tests.support.postgres import SessionPostgres
from tests.support.system import System
from tests.support.zygote import Zygote

ROUNDS = 200
ROUNDS_OF_TURN = 8
WINDOW = 60_000
OVERFLOW_AT, FORK_AT, RESTART_EACH = 90, 120, 20
REUSED_MIN = 0.95
COMPACTED = "agent.thread_context_compacted"


def step(random: Random, left: int) -> dict[str, Any]:
    """What the model says when so many rounds of the turn are left."""
    calls = [use("record", text="x") for _ in range(random.randint(1, 3) if left else 0)]
    return {"content": [text(words(random, 200)), *calls]}


def results(random: Random, uses: list[str], left: int) -> list[Event]:
    """Results of every size, some with an image; the last one says how the model goes on."""
    *others, last = uses
    given = [answered(one, words(random, random.choice((50, 800, 9_000)))) for one in others]
    closing = answered(last, script(step(random, left)), words(random, 400))
    if random.random() < 0.15:
        closing["content"].append(picture(400, 300))
    return [*given, closing]


async def until_it_waits(chat: Chat) -> Event:
    """The newest idle, once the session waits."""
    while True:
        events = await chat.history()
        states = [e for e in events if e["type"].startswith("session.status")]
        if states and states[-1]["type"] == "session.status_idle" and not _is_behind(events):
            return states[-1]
        async with chat.stream() as stream:
            events = await chat.history()
            states = [e for e in events if e["type"].startswith("session.status")]
            if states[-1]["type"] != "session.status_idle":
                await stream.next(60)


def _is_behind(events: list[Event]) -> bool:
    return any(e["type"].startswith("user.") and not e["processed_at"] for e in events)


async def turn(chat: Chat, random: Random, rounds: int) -> None:
    """A turn of so many rounds of calls, and its last answer."""
    await chat.send(message(script(step(random, rounds))))
    while asks(idle := await until_it_waits(chat)):
        rounds -= 1
        await chat.send(*results(random, idle["stop_reason"]["event_ids"], rounds))


async def restarted(chat: Chat) -> None:
    await chat.system.kill()
    await chat.system.start()


async def read(system: System, session: str, path: str = "") -> Any:
    answer = await system.http().get(f"/v1/sessions/{session}/context_snapshots{path}")
    assert answer.status_code == 200, answer.text
    return answer


async def snapshots_of(chat: Chat) -> list[dict[str, Any]]:
    """All of the session's snapshots, oldest first."""
    found, page = list[dict[str, Any]](), ""
    while True:
        listed = (await read(chat.system, chat.id, f"?limit=100{page}")).json()
        found += listed["data"]
        if listed["next_page"] is None:
            return found
        page = f"&page={listed['next_page']}"


async def check_every_request(chat: Chat, asked: list[Asked]) -> None:
    """Each snapshot gives the bytes that were sent; what differs from the one before has a cause
    that was recorded; where nothing was, the provider found the beginning in its cache."""
    snapshots = await snapshots_of(chat)
    bodies = {one.body: one for one in asked if not one.record["path"].endswith("count_tokens")}
    sent: list[Asked] = []
    for one in snapshots:
        body = (await read(chat.system, chat.id, f"/{one['id']}/request")).content
        sent.append(bodies[body])
    causes: list[str] = []
    reused = possible = 0
    for (before, old), (after, new) in pairwise(zip(snapshots, sent, strict=True)):
        path = f"/{before['id']}/diff/{after['id']}"
        cause = (await read(chat.system, chat.id, path)).json()["cause"]
        causes.append(cause)
        if cause == "appended":
            possible += old.record["region_bytes"]
            reused += min(new.record["prefix_bytes"], old.record["region_bytes"])
    assert "bug" not in causes
    assert {"appended", "checkpoint"} <= set(causes)
    assert reused >= REUSED_MIN * possible, (reused, possible)


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_two_hundred_rounds_are_what_the_record_says(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    random = Random(200)
    async with with_window(WINDOW, zygote, model, postgres) as system:
        chat = await Chat.open(system, tools=[custom_tool("record")])
        fork: Chat | None = None
        for done in range(0, ROUNDS, ROUNDS_OF_TURN):
            if done // RESTART_EACH != (done - ROUNDS_OF_TURN) // RESTART_EACH:
                await restarted(chat)
            if done <= OVERFLOW_AT < done + ROUNDS_OF_TURN:
                await model.window(WINDOW * 2 // 5)
            await turn(chat, random, ROUNDS_OF_TURN)
            await model.window(WINDOW)
            if done <= FORK_AT < done + ROUNDS_OF_TURN:
                fork = await chat.fork()
                await turn(fork, random, ROUNDS_OF_TURN)
        events = await chat.history()
        assert types_of(events).count("span.model_request_start") >= ROUNDS
        assert types_of(events).count(COMPACTED) >= 2
        check_history(events)
        await check_chains(chat)
        asked = await model.asked()
        assert 400 in {one.record["status"] for one in asked}
        await check_every_request(chat, asked)
        assert fork is not None
        await check_chains(fork)
        first = await read(system, fork.id, f"/{(await snapshots_of(fork))[0]['id']}/request")
        assert first.content in {one.body for one in asked}
