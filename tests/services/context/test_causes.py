"""What was recorded so that requests fit can be read from their snapshots, and explains every
difference between them."""

import json
from typing import Any

from counterfoil.context.v1 import context_pb2
from counterfoil.context.v1 import snapshots_pb2 as pb
from counterfoil.journal.v1 import journal_pb2
from counterfoil.types.v1.reference_pb2 import Attempt

from foundation.json import enum_literals
from foundation.operations import summary_operation
from tests.services.context.conftest import THREAD, Bench
from tests.services.context.histories import projection, text, use
from tests.services.context.test_making_it_fit import small, turn_of

CHANGES = enum_literals(pb.ContextChange.DESCRIPTOR)
IMAGE = (
    b'{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}'
)


async def one(bench: Bench, prepared: context_pb2.PreparedRequest) -> pb.ContextSnapshot:
    return await bench.another().reading.one(THREAD, prepared.snapshot.id)


async def cause(bench: Bench, *prepared: context_pb2.PreparedRequest) -> tuple[str, Any]:
    """Why the second one does not go on where the first one ends, and where that shows first."""
    ids = [each.snapshot.id for each in prepared]
    found = await bench.another().reading.difference(THREAD, ids[0], ids[1])
    place = found.first_difference
    where = (place.part, place.index) if found.HasField("first_difference") else None
    return CHANGES[found.cause], where


async def full(bench: Bench, turns: int) -> None:
    """So many turns that their results do not fit any more."""
    for number in range(turns):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 3_000)
    await bench.ask(text("next?"))


async def test_archived_results_are_the_cause(bench: Bench) -> None:
    pinned = small(archive=True)
    for number in range(3):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 6_600)
    await bench.ask(text("and now?"))
    first = await bench.prepare(pinned=pinned)
    await bench.answer(text("one more"), use("toolu_z"), uses=(1,))
    await bench.results(_1=projection("y" * 6_000))
    second = await bench.prepare(round=1, pinned=pinned)
    why, where = await cause(bench, first, second)
    assert why == "transition"
    before, after = (json.loads(each.body)["messages"] for each in (first, second))
    blocks = [[b for m in messages for b in m["content"]] for messages in (before, after)]
    changed = next(n for n, (a, b) in enumerate(zip(*blocks, strict=False)) if a != b)
    assert where == (pb.REQUEST_PART_MESSAGES, changed)
    told = await one(bench, second)
    assert told.history_change == pb.HISTORY_CHANGE_PRUNED
    assert told.transition_head.startswith(f"{second.snapshot.transition_head.seq}:")
    assert told.parent_id == first.snapshot.id
    assert not (await one(bench, first)).HasField("parent_id")
    assert told.recipe.entries.first == 1


async def test_a_checkpoint_is_the_cause_and_says_from_where_entries_are_shown(
    bench: Bench,
) -> None:
    await bench.ask(text("hello"))
    first = await bench.prepare(pinned=small())
    await bench.answer(text("hi"))
    await full(bench, 7)
    second = await bench.prepare(round=1, pinned=small())
    assert await cause(bench, first, second) == ("checkpoint", (pb.REQUEST_PART_MESSAGES, 0))
    told = await one(bench, second)
    assert told.history_change == pb.HISTORY_CHANGE_COMPACTED
    assert told.checkpoint_id == second.snapshot.checkpoint_id
    assert 1 < told.recipe.entries.first < told.recipe.entries.last
    await bench.answer(text("yes"))
    await full(bench, 7)
    third = await bench.prepare(round=2, pinned=small())
    assert third.snapshot.checkpoint_id != second.snapshot.checkpoint_id
    assert (await cause(bench, second, third))[0] == "checkpoint"
    assert (await one(bench, third)).recipe.entries.first > told.recipe.entries.first


async def test_images_that_were_left_out_are_the_cause(bench: Bench) -> None:
    await bench.ask(IMAGE, text("what is it"))
    first = await bench.prepare()
    second = await bench.prepare(number=2, overflowed_snapshot_id=first.snapshot.id)
    assert await cause(bench, first, second) == ("transition", (pb.REQUEST_PART_MESSAGES, 0))
    told = await one(bench, second)
    assert told.history_change == pb.HISTORY_CHANGE_IMAGES_OMITTED
    assert told.overflowed_snapshot_id == first.snapshot.id
    assert not (await one(bench, first)).HasField("overflowed_snapshot_id")


async def test_a_request_for_a_summary_is_told_from_one_for_an_answer(bench: Bench) -> None:
    bench.service = bench.another(summary_mode="model")
    await full(bench, 6)
    before = await bench.prepare(pinned=small())
    assert not before.snapshot.checkpoint_id
    await bench.answer(text("yes"))
    await full(bench, 1)
    request = bench.request(round=1, pinned=small())
    wanted = (await bench.service.PrepareRequest(request, None)).summary_needed
    id = summary_operation(request.turn_id, 1, Attempt(epoch=1, number=1), wanted.plan_id)
    bench.journal.calls[id] = journal_pb2.Operation(
        id=id,
        state=journal_pb2.OPERATION_STATE_COMPLETED,
        model_call_outcome=journal_pb2.MODEL_CALL_OUTCOME_ANSWERED,
    )
    told = await one(bench, wanted.request)
    assert told.purpose == pb.SNAPSHOT_PURPOSE_SUMMARY
    assert told.outcome == pb.SNAPSHOT_OUTCOME_ANSWERED
    assert (await one(bench, before)).purpose == pb.SNAPSHOT_PURPOSE_ROUND
    assert (await cause(bench, before, wanted.request))[0] == "summary"


async def test_a_measured_beginning_is_named(bench: Bench) -> None:
    await bench.ask(text("x" * 3_000))
    first = await bench.prepare(pinned=small())
    usage = b'{"usage":{"input_tokens":1200,"output_tokens":30}}'
    await bench.append_answer(text("ok"), envelope=usage, snapshot_id=first.snapshot.id)
    await bench.ask(text("y" * 300))
    second = await bench.prepare(round=1, pinned=small())
    told = await one(bench, second)
    assert told.input_tokens_source == pb.INPUT_TOKENS_SOURCE_USAGE_ANCHOR
    assert told.recipe.anchor == pb.SnapshotAnchor(snapshot_id=first.snapshot.id, tokens=1230)
    assert not (await one(bench, first)).recipe.HasField("anchor")
    assert await cause(bench, first, second) == ("appended", None)
