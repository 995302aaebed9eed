"""A process may die at any commit of what makes a request fit: what was recorded stays, the turn
ends as it would have, and clients are told of each compaction once."""

from random import Random

import pytest

from tests.laws.windows import (
    COMPACTED,
    OUTPUT,
    check_overflows,
    checkpoints,
    errors,
    newest,
    picture,
    statuses,
    tell,
    used,
    user,
    with_window,
    words,
)
from tests.support.chat import Chat, revived, start_anyhow, stop_of, types_of
from tests.support.model import Model
from tests.support.postgres import SessionPostgres
from tests.support.system import System
from tests.support.zygote import Zygote

RECOVERY = [
    "context.record.before=kill@1",
    "context.record.after=kill@1",
    "context.prepare.after=kill@2",
    "ledger.begin_round.after=kill@2",
    "journal.complete_model_call.after=kill@2",
    "context.record.before=kill@2",
    "context.record.after=kill@2",
    "context.prepare.after=kill@3",
    "ledger.begin_round.before=kill@3",
    "ledger.begin_round.after=kill@3",
    "journal.start_model_call.after=kill@3",
    "transcript.append.after=kill@2",
]
QUICK = (RECOVERY[1], RECOVERY[6], RECOVERY[9])


@pytest.mark.parametrize(
    "failpoint",
    [one if one in QUICK else pytest.param(one, marks=pytest.mark.full) for one in RECOVERY],
)
async def test_a_death_in_a_recovery_from_an_overflow(system: System, failpoint: str) -> None:
    """Images are left out, then history is summarized, then the provider answers."""
    await system.start()
    random, model = Random(failpoint), system.model
    chat = await Chat.open(system, model="offline")
    said = [words(random, 6_000) for _ in range(4)]
    for number, one in enumerate(said):
        await tell(chat, user(one, *([picture()] if number == 1 else [])))
    before = len(await model.asked())
    # Without its image the history is still too large.
    await model.window(OUTPUT + (await used(chat) - 1_334) * 2 // 3)
    await system.kill()
    died_early = await start_anyhow(system, failpoint)
    async with revived(system) as dead:
        events = await chat.complete([*said, "And now?"])
    assert dead or died_early, "nobody died"
    assert (errors(events), stop_of(events[-1])) == ([], "end_turn")
    asked = await newest(chat, before)
    assert statuses(asked)[-1] == 200
    assert b'"type":"image"' not in asked[-1].body
    made = await checkpoints(chat)
    assert len(made) == types_of(events).count(COMPACTED) == 1
    await check_overflows(chat)


@pytest.mark.parametrize(
    "failpoint",
    [
        "journal.start_model_call.after=kill@1",
        "journal.complete_model_call.after=kill@1",
        pytest.param("context.prepare.after=kill@1", marks=pytest.mark.full),
        pytest.param("context.record.after=kill@1", marks=pytest.mark.full),
        pytest.param("ledger.begin_round.after=kill@1", marks=pytest.mark.full),
    ],
)
async def test_a_death_around_a_summary_by_a_model(
    zygote: Zygote, model: Model, postgres: SessionPostgres, failpoint: str
) -> None:
    mode = {"COUNTERFOIL_CONTEXT_SUMMARY": "model"}
    async with with_window(12_000, zygote, model, postgres, "embedded", **mode) as system:
        chat, random = await Chat.open(system), Random(failpoint)
        # As much as fits without a summary: the next message does not.
        said = [words(random, 3_000) for _ in range(6)]
        for one in said:
            await tell(chat, user(one))
        assert COMPACTED not in types_of(await chat.history())
        await system.kill()
        died_early = await start_anyhow(system, failpoint)
        async with revived(system) as dead:
            events = await chat.complete([*said, words(random, 3_000)])
        assert dead or died_early, "nobody died"
        assert (errors(events), stop_of(events[-1])) == ([], "end_turn")
        made = await checkpoints(chat)
        assert len(made) == types_of(events).count(COMPACTED) == 1
        asked = await newest(chat, 0)
        summaries = [one for one in asked if "## Goals" in str(one.messages[-1])]
        assert len(summaries) in (1, 2)
        assert b"as the offline model understood them" in asked[-1].body
