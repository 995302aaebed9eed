"""A process dies at a step of a fork: the fork is there with its whole history, once, or not at all
and asked for again."""

import httpx2
import pytest

from tests.laws.forking import CALLS, PLAIN, PROBE, erased, request_of, talk
from tests.support.chat import is_idle, message, result, revived, start_anyhow
from tests.support.invariants import check_everything
from tests.support.model import Model, script, use
from tests.support.postgres import SessionPostgres
from tests.support.system import System, system_of
from tests.support.zygote import Zygote

COMMITS = (
    "ledger.fork_session",
    "idempotency.answer",
    "ledger.claim",
    "transcript.copy",
    "journal.copy",
    "context.copy",
    "ledger.commit_turn",
)
"""The commits of a fork that is asked for under a key, in order."""

QUICK = {"idempotency.answer.after", "transcript.copy.after", "context.copy.before"}


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=() if point in QUICK else pytest.mark.full)
        for commit in COMMITS
        for point in (f"{commit}.before", f"{commit}.after")
    ],
)
async def test_a_death_at_a_commit_of_a_fork_changes_nothing(system: System, point: str) -> None:
    await system.start()
    chat, ends = await talk(system, CALLS, PLAIN)
    await system.kill()
    await start_anyhow(system, f"{point}=kill")
    async with revived(system) as dead:
        fork = await chat.fork(ends[0])
        history = await fork.complete([PROBE])
        assert dead
        await check_everything(fork, history, all_requests=False)
    asked = await system.model.asked()
    reference = await request_of(await chat.fork(ends[0]), PROBE)
    assert reference.body in {one.body for one in asked}
    sessions = (await system.http().get("/v1/sessions")).json()["data"]
    forked = [one for one in sessions if "forked_from" in one]
    assert len(forked) == 2


@pytest.mark.full
@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_death_while_artifacts_are_copied_changes_nothing(
    system: System, side: str
) -> None:
    await system.start()
    chat, _ = await talk(system)
    async with chat.stream() as stream:
        await chat.send(message(script({"content": [use("decide", text="a")]})))
        asks = (await stream.until(is_idle))[-1]
        await chat.send(result(asks["stop_reason"]["event_ids"][0], "x" * 150_000))
        await stream.until(is_idle)
    await system.kill()
    await start_anyhow(system, f"files.copy.{side}=kill")
    async with revived(system) as dead:
        fork = await chat.fork()
        await fork.complete([PROBE])
        assert dead
    asked = {one.body for one in await system.model.asked()}
    assert (await request_of(chat, PROBE)).body in asked


@pytest.mark.full
async def test_a_fork_waits_for_a_runner_and_its_source_with_it(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    async with system_of("split", zygote, model, postgres) as system:
        await system.start()
        chat, _ = await talk(system, CALLS)
        expected = (await request_of(await chat.fork(), PROBE)).body
        await system.kill("runner")
        fork = await chat.fork()
        await fork.send(message(PROBE))
        await chat.client.beta.sessions.delete(chat.id)
        with pytest.raises(httpx2.HTTPStatusError):
            (await system.http().get(f"/v1/sessions/{chat.id}")).raise_for_status()
        await system.start()
        await fork.complete([PROBE])
        assert [one.body for one in await model.asked()].count(expected) == 2
        await erased(chat)
