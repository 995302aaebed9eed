"""Every request fits the provider's window, and one that does not, because the window is smaller
than anybody said, is made to fit: without its images, then with a summary; else the turn ends and
the session goes on."""

from random import Random

import pytest
from counterfoil.journal.v1.journal_pb2 import InspectOperationsRequest

from tests.laws.windows import (
    COMPACTED,
    OUTPUT,
    check_overflows,
    check_requests,
    checkpoints,
    errors,
    newest,
    picture,
    play,
    room_left,
    statuses,
    tell,
    used,
    user,
    with_window,
    words,
)
from tests.support.chat import Chat, custom_tool, stop_of, types_of
from tests.support.invariants import check_chains, check_history, check_operations
from tests.support.model import Model
from tests.support.postgres import SessionPostgres
from tests.support.system import System
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
        check_history(events)
        thread = await check_chains(chat)
        await check_operations(chat, thread)
        await check_requests(chat, thread)
        asked = await newest(chat, 0)
        assert set(statuses(asked)) == {200}
        assert min(room_left(one, window) for one in asked) >= 0
        assert errors(events) == []
        assert len(await checkpoints(chat)) == types_of(events).count(COMPACTED) > 0


LIMIT, WINDOW = "compaction_limit_reached_error", "model_request_failed_error"


async def test_a_first_message_with_an_image_of_5_mb_does_not_end_the_session(
    running_system: System,
) -> None:
    """The provider takes images of 5 MB as base64: one that has them as bytes is left out, and
    costs neither a request nor the images beside it."""
    chat = await Chat.open(running_system, model="offline")
    large = picture(length=5 * 2**20)
    fits = picture(length=3_932_160)
    for said in (["What is this?", large], ["And this?", fits], [large, picture()], ["Thank you"]):
        events = await tell(chat, user(*said))
        assert stop_of(events[-1]) == "end_turn"
    asked = await newest(chat, 0)
    assert statuses(asked) == [200] * 4
    assert [one.body.count(b'"type":"image"') for one in asked] == [0, 1, 2, 2]
    assert [one.body.count(b'"text":"(an image of more') for one in asked] == [1, 1, 2, 2]
    history = await chat.history()
    assert (errors(history), types_of(history).count(COMPACTED)) == ([], 0)
    await check_overflows(chat)


async def test_an_image_with_edges_that_are_too_long_does_not_end_the_session(
    running_system: System,
) -> None:
    """What else the provider finds too large is left out when it says so."""
    chat = await Chat.open(running_system, model="offline")
    events = await tell(chat, user("What is this?", picture(9_000, 10)))
    assert stop_of(events[-1]) == "end_turn"
    assert statuses(await newest(chat, 0)) == [400, 200]
    assert "left out" in (await newest(chat, 1))[0].body.decode()
    assert errors(await chat.history()) == []
    await check_overflows(chat)


async def test_an_overflow_leaves_images_out_then_summarizes_once_then_ends_the_turn(
    running_system: System,
) -> None:
    random, model = Random(7), running_system.model
    chat = await Chat.open(running_system, model="offline")
    for number in range(6):
        said = [picture()] if number in (1, 2, 4) else []
        await tell(chat, user(words(random, 6_000), *said))
    before = len(await model.asked())

    await model.window(OUTPUT + await used(chat) - 2_000)
    events = await tell(chat, user("One"))
    assert stop_of(events[-1]) == "end_turn"
    assert statuses(await newest(chat, before)) == [400, 200]
    assert b'"type":"image"' not in (await newest(chat, before))[1].body
    assert COMPACTED not in types_of(events)

    before += 2
    await model.window(OUTPUT + await used(chat) * 2 // 3)
    events = await tell(chat, user("Two"))
    assert stop_of(events[-1]) == "end_turn"
    assert statuses(await newest(chat, before)) == [400, 200]
    spans = [type for type in types_of(events) if type.startswith("span") or type == COMPACTED]
    start, end = "span.model_request_start", "span.model_request_end"
    assert spans == [start, end, COMPACTED, start, end]

    before += 2
    await model.window(OUTPUT + 40)
    events = await tell(chat, user("Three"))
    assert (errors(events), stop_of(events[-1])) == ([LIMIT], "retries_exhausted")
    refused = await newest(chat, before)
    assert len(refused) <= 4
    assert set(statuses(refused)) == {400}

    await model.window(200_000)
    events = await tell(chat, user("Four"))
    assert (errors(events), stop_of(events[-1])) == ([], "end_turn")
    assert len(await checkpoints(chat)) == types_of(await chat.history()).count(COMPACTED)
    await check_overflows(chat)


async def test_a_message_that_is_too_long_by_itself_is_refused_before_the_provider_is_asked(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    async with with_window(6_000, zygote, model, postgres) as system:
        chat = await Chat.open(system)
        events = await tell(chat, user(words(Random(1), 40_000)))
        assert (errors(events), stop_of(events[-1])) == ([WINDOW], "retries_exhausted")
        assert await newest(chat, 0) == []
        events = await tell(chat, user("Short"))
        assert stop_of(events[-1]) == "end_turn"


async def test_the_provider_counts_what_the_estimate_cannot_tell(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    async with with_window(6_000, zygote, model, postgres) as system:
        chat = await Chat.open(system)
        # Too large at three bytes a token, and not at the four that the provider counts.
        events = await tell(chat, user(words(Random(1), 10_000)))
        assert stop_of(events[-1]) == "end_turn"
        counted, sent = await model.asked(counts=True)
        assert counted.record["path"] == "/v1/messages/count_tokens"
        assert statuses([counted, sent]) == [200, 200]
        assert counted.messages == sent.messages
        assert counted.record["input_tokens"] == sent.record["input_tokens"]


async def test_a_model_writes_the_summary_and_its_cost_is_told(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    """A call of its own, with a snapshot of its own; it begins with the bytes that were sent
    before, so that the provider has them in its cache."""
    async with with_window(
        12_000, zygote, model, postgres, COUNTERFOIL_CONTEXT_SUMMARY="model"
    ) as system:
        chat, random = await Chat.open(system), Random(3)
        while COMPACTED not in types_of(await chat.history()):
            assert stop_of((await tell(chat, user(words(random, 3_000))))[-1]) == "end_turn"
        asked = await newest(chat, 0)
        (place,) = [n for n, one in enumerate(asked) if "## Goals" in str(one.messages[-1])]
        record = asked[place].record
        assert record["prefix_bytes"] > 0.8 * record["region_bytes"]
        assert b"as the offline model understood them" in asked[place + 1].body
        assert set(statuses(asked)) == {200}
        history = await chat.history()
        spans = types_of(history).count("span.model_request_start")
        assert spans == len(asked) - 1
        check_history(history, [record["input_tokens"]])
        thread = await check_chains(chat)
        found = await system.journal.InspectOperations(
            InspectOperationsRequest(thread=thread, reader="test", purpose="summaries")
        )
        assert len(found.operations) == len(asked)
        await check_requests(chat, thread)
