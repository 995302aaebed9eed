"""What is told of snapshots, over PostgreSQL: pages, recipes, requests, differences."""

import hashlib
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from counterfoil.context.v1 import context_pb2
from counterfoil.context.v1 import snapshots_pb2 as pb
from counterfoil.journal.v1 import journal_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import model_pb2
from counterfoil.types.v1.reference_pb2 import Attempt

from foundation.errors import Failure
from foundation.json import enum_literals
from foundation.operations import model_operation
from foundation.storage.testing import assert_sql_prepares
from services.context import page_store
from services.context.reading import Reading
from tests.services.context.conftest import OTHER, THREAD, Bench, runtime
from tests.services.context.histories import WITHHELD, text

OUTCOMES = enum_literals(pb.SnapshotOutcome.DESCRIPTOR)
CHANGES = enum_literals(pb.ContextChange.DESCRIPTOR)
COMPLETED = journal_pb2.OPERATION_STATE_COMPLETED


async def refused(call: Awaitable[Any]) -> int:
    with pytest.raises(Failure) as failure:
        await call
    return failure.value.reason


def reading(bench: Bench) -> Reading:
    return bench.another().reading


async def page(
    bench: Bench, thread: Any = THREAD, **fields: Any
) -> pb.ListContextSnapshotsResponse:
    request = context_pb2.InspectSnapshotsRequest(thread=thread, **fields)
    return await reading(bench).page(thread, request)


async def many(bench: Bench, count: int) -> list[str]:
    await bench.ask()
    return [(await bench.prepare(number=n + 1)).snapshot.id for n in range(count)]


async def test_every_statement_prepares(bench: Bench) -> None:
    assert await assert_sql_prepares(page_store, bench.dsn) == 5


@pytest.mark.parametrize("order", [pb.SNAPSHOT_ORDER_ASC, pb.SNAPSHOT_ORDER_DESC])
async def test_pages_hold_every_snapshot_once_and_in_order(
    bench: Bench, order: pb.SnapshotOrder.ValueType
) -> None:
    made = await many(bench, 7)
    found: list[str] = []
    response = await page(bench, limit=3, order=order)
    sizes = [len(response.data)]
    while response.HasField("next_page"):
        found += [one.id for one in response.data]
        response = await page(bench, limit=3, order=order, page=response.next_page)
        sizes.append(len(response.data))
    found += [one.id for one in response.data]
    assert found == (made if order == pb.SNAPSHOT_ORDER_ASC else made[::-1])
    assert sizes == [3, 3, 1]
    whole = await page(bench, limit=7)
    assert len(whole.data) == 7
    assert not whole.HasField("next_page")


async def test_a_cursor_is_of_one_thread_and_one_order(bench: Bench) -> None:
    await many(bench, 2)
    cursor = (await page(bench, limit=1)).next_page
    invalid = reasons.ERROR_REASON_INVALID_FIELD
    assert await refused(page(bench, thread=OTHER, page=cursor)) == invalid
    assert await refused(page(bench, order=pb.SNAPSHOT_ORDER_DESC, page=cursor)) == invalid
    assert await refused(page(bench, page="x")) == invalid


async def test_a_thread_without_requests_has_none(bench: Bench) -> None:
    await many(bench, 1)
    assert list((await page(bench, thread=OTHER)).data) == []


async def test_a_foreign_snapshot_is_not_found(bench: Bench) -> None:
    (id,) = await many(bench, 1)
    calls: list[Awaitable[Any]] = [
        reading(bench).one(OTHER, id),
        reading(bench).request(OTHER, id),
        reading(bench).difference(OTHER, id, id),
        reading(bench).difference(THREAD, id, "snap_1"),
    ]
    for call in calls:
        assert await refused(call) == reasons.ERROR_REASON_NOT_FOUND


async def test_a_snapshot_says_all_that_its_request_was_made_of(bench: Bench) -> None:
    pinned = runtime(
        model_options=model_pb2.ModelOptions(
            effort=model_pb2.MODEL_EFFORT_LOW,
            speed=model_pb2.MODEL_SPEED_FAST,
            inference_geo="us",
        )
    )
    await bench.ask()
    prepared = await bench.prepare(pinned=pinned)
    found = await reading(bench).one(THREAD, prepared.snapshot.id)
    assert found.id == prepared.snapshot.id
    assert found.session_thread_id == THREAD.thread_id
    assert (found.turn_id, found.round, found.attempt) == ("turn_1", 0, Attempt(epoch=1, number=1))
    assert found.transcript_head == f"1:{bench.head.digest.hex()}"
    assert found.request_digest == hashlib.sha256(prepared.body).hexdigest()
    assert found.request_bytes == len(prepared.body)
    assert found.input_tokens == prepared.snapshot.input_tokens_estimate
    assert found.input_tokens_source == pb.INPUT_TOKENS_SOURCE_ESTIMATE
    assert abs(datetime.now(UTC) - found.created_at.ToDatetime(UTC)) < timedelta(minutes=5)
    assert not found.HasField("parent_id")
    assert not found.HasField("checkpoint_id")
    assert not found.HasField("transition_head")
    recipe = found.recipe
    assert (recipe.entries.first, recipe.entries.last) == (1, 1)
    assert (recipe.profile.id, recipe.profile.version) == ("offline", 1)
    assert recipe.profile.adapter == "messages"
    (tool,) = recipe.tools
    bound = pinned.tools[0]
    assert (tool.name, tool.owner, tool.policy) == (bound.name, bound.owner, bound.policy)
    assert not tool.HasField("version")
    assert recipe.parameters == pb.SnapshotParameters(
        output_tokens_max=recipe.limits.output_tokens_reserved,
        effort=model_pb2.MODEL_EFFORT_LOW,
        speed=model_pb2.MODEL_SPEED_FAST,
        inference_geo="us",
        stream=True,
    )
    limits = recipe.limits
    kept_free = limits.output_tokens_reserved + limits.growth_tokens_reserved
    assert limits.input_tokens_limit == limits.window_tokens - kept_free
    assert list(recipe.betas) == list(prepared.betas)
    assert recipe.catalog
    assert recipe.materializer > 0
    listed = (await page(bench)).data[0]
    found.ClearField("recipe")
    assert listed == found


@pytest.mark.parametrize(
    ("state", "ended", "outcome"),
    [
        (None, 0, "not_sent"),
        (journal_pb2.OPERATION_STATE_ABANDONED, 0, "not_sent"),
        (journal_pb2.OPERATION_STATE_STARTED, 0, "sent"),
        (journal_pb2.OPERATION_STATE_AMBIGUOUS, 0, "lost"),
        (COMPLETED, journal_pb2.MODEL_CALL_OUTCOME_ANSWERED, "answered"),
        (COMPLETED, journal_pb2.MODEL_CALL_OUTCOME_FAILED, "failed"),
    ],
)
async def test_what_became_of_a_request_is_the_journals_word(
    bench: Bench, state: Any, ended: Any, outcome: str
) -> None:
    first, second = await many(bench, 2)
    id = model_operation("turn_1", 0, Attempt(epoch=1, number=2))
    if state is not None:
        bench.journal.calls[id] = journal_pb2.Operation(
            id=id, state=state, model_call_outcome=ended, snapshot_id=second
        )
    bench.journal.asked.clear()
    found = {one.id: OUTCOMES[one.outcome] for one in (await page(bench)).data}
    assert found == {first: "not_sent", second: outcome}
    assert len(bench.journal.asked) == 2, "one question for a page"


async def test_reading_a_request_and_a_difference_leaves_a_record(bench: Bench) -> None:
    first, second = await many(bench, 2)
    await reading(bench).one(THREAD, first)
    assert await reading(bench).request(THREAD, first)
    await reading(bench).difference(THREAD, first, second)
    rows = await bench.db.fetch("SELECT action, snapshot_id FROM context.access ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [
        ("request", first),
        ("diff", first),
        ("diff", second),
    ]


async def differ(bench: Bench, one: str, other: str) -> pb.ContextSnapshotDiff:
    found = await reading(bench).difference(THREAD, one, other)
    turned = await reading(bench).difference(THREAD, other, one)
    assert (found.cause, found.first_difference) == (turned.cause, turned.first_difference)
    return found


async def test_a_later_round_is_appended(bench: Bench) -> None:
    await bench.ask()
    first = (await bench.prepare()).snapshot.id
    await bench.answer(text("hello"))
    await bench.ask(text("and"), text("more"))
    second = (await bench.prepare(round=1)).snapshot.id
    found = await differ(bench, first, second)
    assert CHANGES[found.cause] == "appended"
    assert not found.HasField("first_difference")
    assert (found.shared_blocks, found.blocks, found.other_blocks) == (1, 1, 4)
    assert CHANGES[(await differ(bench, first, first)).cause] == "same"


@pytest.mark.parametrize(
    ("pinned", "cause", "part"),
    [
        ({"system": "another"}, "system", pb.REQUEST_PART_SYSTEM),
        ({"tools": []}, "tools", pb.REQUEST_PART_TOOLS),
        ({"model": "offline-2"}, "parameters", pb.REQUEST_PART_PARAMETERS),
    ],
)
async def test_what_a_session_changed_is_the_cause(
    bench: Bench, pinned: dict[str, Any], cause: str, part: int
) -> None:
    await bench.ask()
    first = (await bench.prepare()).snapshot.id
    second = (await bench.prepare(number=2, pinned=runtime(**pinned))).snapshot.id
    found = await differ(bench, first, second)
    assert CHANGES[found.cause] == cause
    assert found.first_difference.part == part
    assert found.shared_blocks == 0


async def test_entries_that_were_taken_out_are_the_cause(bench: Bench) -> None:
    await bench.ask(text("kept"))
    await bench.answer(text("kept too"))
    await bench.ask(text("to be taken out"))
    first = (await bench.prepare()).snapshot.id
    await bench.append(WITHHELD, skipped_entry_ids=["tent_3"])
    await bench.ask(text("in its place"))
    second = (await bench.prepare(round=1)).snapshot.id
    found = await differ(bench, first, second)
    assert CHANGES[found.cause] == "withheld"
    place = found.first_difference
    assert (place.part, place.index, place.message) == (pb.REQUEST_PART_MESSAGES, 2, 2)
