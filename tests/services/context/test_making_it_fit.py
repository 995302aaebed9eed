"""Law 4 over PostgreSQL: what does not fit is made smaller by record, and every request that was
ever made can be built again."""

import base64
import json
import re
from typing import Any

import pytest
from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.journal.v1.journal_pb2 import Projection
from counterfoil.types.v1 import runtime_pb2

from foundation.artifacts import IMAGE_BYTES_MAX
from services.context import summary
from services.context.cache import WarmCache
from tests.services.context.conftest import Bench, runtime
from tests.services.context.histories import projection, projection_of, text, use

WINDOW = 16_000
"""Leaves 8,000 tokens for an input with room for one more round."""

ARCHIVE = runtime_pb2.ToolBinding(
    name="read_archive",
    owner=runtime_pb2.TOOL_OWNER_PLATFORM_MANAGED,
    policy=runtime_pb2.TOOL_POLICY_ALWAYS_ALLOW,
    input_schema=b'{"type":"object"}',
)


def small(*, archive: bool = False, window: int = WINDOW, **fields: Any) -> Any:
    pinned = runtime(**fields)
    pinned.profile.window_tokens = window
    if archive:
        pinned.tools.append(ARCHIVE)
    return pinned


async def round_of(bench: Bench, said: str, result: Projection) -> None:
    await bench.answer(text(f"I will call for {said}."), use(f"toolu_{said}"), uses=(1,))
    await bench.results(_1=result)


def image(id: str, size: int = 5, *, said: str = "") -> Projection:
    """A result with an image, and words behind it."""
    shown = {"artifact_id": id, "h": 9, "kind": "artifact", "media_type": "image/png"}
    parts: list[Any] = [{**shown, "sha256": "0" * 64, "size": size, "w": 9}]
    parts += [{"kind": "text", "text": said}] if said else []
    return projection_of(json.dumps({"kind": "content", "parts": parts, "v": 1}).encode())


async def turn_of(bench: Bench, said: str, *results: str) -> None:
    """A whole turn: input, a round for each result, and the last answer."""
    await bench.ask(text(f"goal {said}: you must keep {said}.txt"))
    for number, result in enumerate(results):
        await round_of(bench, f"{said}{number}", projection(result))
    await bench.answer(text(f"decided {said}"))


def closed(body: bytes) -> bool:
    """Whether every call has exactly one result, in the message behind it."""
    messages = json.loads(body)["messages"]
    for index, message in enumerate(messages):
        uses = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        behind = messages[index + 1]["content"] if index + 1 < len(messages) else []
        results = [b["tool_use_id"] for b in behind if b["type"] == "tool_result"]
        if uses != results and (uses or message["role"] == "assistant"):
            return False
    return True


async def all_rebuild(bench: Bench, made: dict[str, bytes]) -> None:
    for id, body in made.items():
        assert await bench.rebuild(id) == body


async def test_results_that_were_read_are_archived_when_that_averts_a_summary(
    bench: Bench,
) -> None:
    pinned = small(archive=True)
    for number in range(3):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 6_600)
    await bench.ask(text("and now?"))
    first = await bench.prepare(pinned=pinned)
    assert first.snapshot.transition_head.seq == 0
    await bench.answer(text("one more"), use("toolu_z"), uses=(1,))
    await bench.results(_1=projection("y" * 6_000))
    second = await bench.prepare(round=1, pinned=pinned)
    assert second.snapshot.transition_head.seq > 0
    assert not second.snapshot.checkpoint_id
    assert b"<r1>" not in second.body.replace(b"begins:)\\n<r1>", b"")
    archived = re.findall(rb'read_archive, ref \\"(op_\w+)\\"', second.body)
    assert len(archived) == second.snapshot.transition_head.seq
    assert closed(second.body)
    cold = await bench.another(WarmCache(0)).PrepareRequest(
        bench.request(round=1, number=2, pinned=pinned), None
    )
    assert cold.prepared.body == second.body
    await all_rebuild(bench, {p.snapshot.id: p.body for p in (first, second)})


async def test_the_beginning_is_replaced_by_a_summary_once_and_stays_replaced(
    bench: Bench,
) -> None:
    pinned, made = small(), dict[str, bytes]()
    ids: list[str] = []
    for number in range(12):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 3_000)
        await bench.ask(text("next?"))
        prepared = await bench.prepare(round=number, pinned=pinned)
        made[prepared.snapshot.id] = prepared.body
        ids.append(prepared.snapshot.checkpoint_id)
        assert prepared.compaction_id == prepared.snapshot.checkpoint_id
        assert prepared.snapshot.input_tokens_estimate <= 8_000
        assert closed(prepared.body)
        cold = await bench.another(WarmCache(0)).PrepareRequest(
            bench.request(round=number, number=2, pinned=pinned), None
        )
        assert cold.prepared.body == prepared.body
        await bench.answer(text("yes"))
    checkpoints = list(dict.fromkeys(ids))
    assert len(checkpoints) >= 3
    assert checkpoints[0] == ""
    assert ids == sorted(ids, key=checkpoints.index)
    last = json.loads(list(made.values())[-1])["messages"][0]["content"][0]["text"]
    assert all(f"## {heading}" in last for heading in summary.HEADINGS)
    assert "goal t0" in last
    assert "t0.txt" in last
    assert b"<r0>xxxxxxxxxx" * 20 not in list(made.values())[-1]
    await all_rebuild(bench, made)


async def test_a_long_turn_is_cut_through_and_its_input_stays(bench: Bench) -> None:
    pinned = small()
    await bench.ask(text("the one goal: count everything"))
    for number in range(10):
        await round_of(bench, f"c{number}", projection(f"<r{number}>" + "x" * 3_000))
        prepared = await bench.prepare(round=number + 1, pinned=pinned)
        assert closed(prepared.body)
        assert b"the one goal: count everything" in prepared.body
        assert f"<r{number}>".encode() in prepared.body
    messages = json.loads((await bench.prepare(round=11, pinned=pinned)).body)["messages"]
    assert messages[0]["content"][0]["text"].startswith("The beginning of this conversation")
    assert messages[1]["content"] == [{"type": "text", "text": "the one goal: count everything"}]
    assert messages[2]["role"] == "assistant"


def image_of(size: int) -> bytes:
    """An image block of an input whose image has so many bytes."""
    block = b'{"type":"image","source":{"type":"base64","media_type":"image/png","data":"%b"}}'
    return block % base64.b64encode(b"\x89PNG".ljust(size, b"\0"))


async def test_an_image_that_no_provider_takes_is_left_out_alone(bench: Bench) -> None:
    """It was never sent, so nothing is recorded; and there is nothing to leave out after that."""
    await bench.ask(image_of(IMAGE_BYTES_MAX + 1), image_of(IMAGE_BYTES_MAX), text("what is it"))
    prepared = await bench.prepare()
    said = json.loads(prepared.body)["messages"][0]["content"]
    assert [block["type"] for block in said] == ["text", "image", "text"]
    assert "left out here" in said[0]["text"]
    assert prepared.snapshot.input_tokens_estimate < 3_000
    again = await bench.prepare(number=2, overflowed_snapshot_id=prepared.snapshot.id)
    said = json.loads(again.body)["messages"][0]["content"]
    assert ["left out" in block["text"] for block in said] == [True, True, False]
    await all_rebuild(bench, {p.snapshot.id: p.body for p in (prepared, again)})


async def test_a_first_message_with_a_large_image_is_sent(bench: Bench) -> None:
    await bench.ask(image_of(IMAGE_BYTES_MAX), text("what is it"))
    prepared = await bench.prepare()
    assert prepared.snapshot.input_tokens_estimate < 3_000
    # The provider refuses it all the same: the image is left out, and the session lives on.
    again = await bench.prepare(number=2, overflowed_snapshot_id=prepared.snapshot.id)
    assert b'"image"' not in again.body
    assert b"what is it" in again.body
    assert again.snapshot.transition_head.seq == 1
    await bench.answer(text("cannot see it"))
    await bench.ask(text("go on"))
    assert b'"image"' not in (await bench.prepare(round=1)).body
    await all_rebuild(bench, {p.snapshot.id: p.body for p in (prepared, again)})


async def test_an_overflow_costs_images_then_history_then_the_turn(bench: Bench) -> None:
    bench.artifacts.bodies["art_1"] = b"image"
    await bench.ask(text("look"))
    await round_of(bench, "look", image("art_1", said="seen"))
    await bench.answer(text("done"))
    for number in range(4):
        await turn_of(bench, f"t{number}", "x" * 3_000)
    await bench.ask(text("and?"))
    first = await bench.prepare(pinned=small())
    assert b'"data":"aW1hZ2U="' in first.body
    second = await bench.prepare(number=2, pinned=small(), overflowed_snapshot_id=first.snapshot.id)
    assert b'"data"' not in second.body
    assert b"seen" in second.body
    assert not second.snapshot.checkpoint_id
    third = await bench.prepare(number=3, pinned=small(), overflowed_snapshot_id=second.snapshot.id)
    assert third.snapshot.checkpoint_id
    assert len(third.body) < len(second.body) / 2
    request = bench.request(number=4, pinned=small(), overflowed_snapshot_id=third.snapshot.id)
    response = await bench.service.PrepareRequest(request, None)
    assert response.refused.reason == pb.REFUSAL_REASON_COMPACTION_LIMIT
    await all_rebuild(bench, {p.snapshot.id: p.body for p in (first, second, third)})


async def test_what_an_owner_recorded_before_it_died_is_not_recorded_again(bench: Bench) -> None:
    for number in range(5):
        await turn_of(bench, f"t{number}", "x" * 3_000)
    await bench.ask(text("and?"))
    first = await bench.prepare(pinned=small())
    again = {"pinned": small(), "overflowed_snapshot_id": first.snapshot.id}
    second = await bench.prepare(number=2, **again)
    bench.service = bench.another()
    third = await bench.prepare(number=3, epoch=2, **again)
    assert third.snapshot.checkpoint_id == second.snapshot.checkpoint_id
    assert third.body == second.body


async def test_what_cannot_become_smaller_is_refused_and_nothing_is_recorded(
    bench: Bench,
) -> None:
    await bench.ask(text("x" * 60_000))
    response = await bench.service.PrepareRequest(bench.request(pinned=small()), None)
    assert response.refused.reason == pb.REFUSAL_REASON_INPUT_TOO_LARGE
    assert response.refused.window_tokens == WINDOW
    assert await bench.listed() == []


async def test_another_model_gets_the_summary_made_again_and_never_what_it_covers(
    bench: Bench,
) -> None:
    for number in range(7):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 3_000)
    await bench.ask(text("next?"))
    first = await bench.prepare(pinned=small())
    assert first.snapshot.checkpoint_id
    wide = small(window=400_000, model="offline-other")
    second = await bench.prepare(number=2, pinned=wide)
    assert second.snapshot.checkpoint_id not in ("", first.snapshot.checkpoint_id)
    covered = set(re.findall(rb"<r\d>x{99}", first.body))
    assert set(re.findall(rb"<r\d>x{99}", second.body)) == covered
    third = await bench.prepare(number=3, pinned=wide)
    assert third.body == second.body
    assert third.snapshot.checkpoint_id == second.snapshot.checkpoint_id


async def test_a_model_writes_the_summary_where_the_deployment_says_so(bench: Bench) -> None:
    bench.service = bench.another(summary_mode="model")
    for number in range(7):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 3_000)
    await bench.ask(text("next?"))
    response = await bench.service.PrepareRequest(bench.request(pinned=small()), None)
    wanted = response.summary_needed
    messages = json.loads(wanted.request.body)["messages"]
    assert messages[-1]["role"] == "user"
    assert all(heading in messages[-1]["content"][0]["text"] for heading in summary.HEADINGS)
    assert json.loads(wanted.request.body)["tool_choice"] == {"type": "none"}
    assert await bench.rebuild(wanted.request.snapshot.id) == wanted.request.body
    good = "\n".join(f"## {heading}\n- about {heading}" for heading in summary.HEADINGS)
    given = pb.ModelSummary(plan_id=wanted.plan_id, text=good + "\n" + "y" * 200, operation_id="op")
    prepared = await bench.prepare(pinned=small(), summary=given)
    assert b"- about Goals" in prepared.body
    assert await bench.rebuild(prepared.snapshot.id) == prepared.body


@pytest.mark.parametrize("said", ["", "no sections", "## Goals\n\n## Constraints"])
async def test_a_summary_that_does_not_keep_the_form_is_replaced_by_the_extract(
    bench: Bench, said: str
) -> None:
    bench.service = bench.another(summary_mode="model")
    for number in range(7):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 3_000)
    await bench.ask(text("next?"))
    response = await bench.service.PrepareRequest(bench.request(pinned=small()), None)
    given = pb.ModelSummary(plan_id=response.summary_needed.plan_id, text=said)
    prepared = await bench.prepare(pinned=small(), summary=given)
    assert prepared.snapshot.checkpoint_id
    assert b"goal t0" in prepared.body


async def test_the_providers_count_decides_where_the_estimate_says_no(bench: Bench) -> None:
    pinned = small()
    pinned.profile.token_counting = True
    for number in range(7):
        await turn_of(bench, f"t{number}", "x" * 3_500)
    await bench.ask(text("next?"))
    response = await bench.service.PrepareRequest(bench.request(pinned=pinned), None)
    asked = response.count_needed
    assert set(json.loads(asked.body)) == {"model", "system", "tools", "messages"}
    for number, (tokens, compacts) in enumerate([(7_999, False), (8_001, True)]):
        count = pb.TokenCount(body_digest=asked.body_digest, input_tokens=tokens)
        prepared = await bench.prepare(number=2 + number, pinned=pinned, count=count)
        assert bool(prepared.snapshot.checkpoint_id) is compacts


async def test_a_measured_answer_anchors_the_size_of_what_follows(bench: Bench) -> None:
    await bench.ask(text("x" * 3_000))
    first = await bench.prepare(pinned=small())
    usage = b'{"usage":{"input_tokens":500,"cache_read_input_tokens":700,"output_tokens":30}}'
    await bench.append_answer(text("ok"), envelope=usage, snapshot_id=first.snapshot.id)
    await bench.ask(text("y" * 300))
    second = await bench.prepare(round=1, pinned=small())
    assert 1_230 + 100 <= second.snapshot.input_tokens_estimate <= 1_230 + 140


async def test_a_process_that_missed_a_record_reads_it_before_it_makes_a_request(
    bench: Bench,
) -> None:
    for number in range(7):
        await turn_of(bench, f"t{number}", "x" * 3_500)
    await bench.ask(text("next?"))
    wide = await bench.prepare(pinned=small(window=400_000))
    other = bench.another()
    narrow = await other.PrepareRequest(bench.request(number=2, pinned=small()), None)
    assert narrow.prepared.snapshot.checkpoint_id
    late = await bench.prepare(number=3, pinned=small(window=400_000))
    assert late.snapshot.checkpoint_id == narrow.prepared.snapshot.checkpoint_id
    assert len(late.body) < len(wide.body)


async def test_an_image_is_sent_in_the_same_bytes_after_the_store_was_down(bench: Bench) -> None:
    bench.artifacts.bodies["art_1"] = b"image"
    await bench.ask(text("look"))
    await round_of(bench, "look", image("art_1"))
    bench.artifacts.is_down = True
    with pytest.raises(Exception, match="object store"):
        await bench.prepare()
    bench.artifacts.is_down = False
    first = await bench.prepare()
    cold = await bench.another(WarmCache(0)).PrepareRequest(bench.request(number=2), None)
    assert cold.prepared.body == first.body


async def test_the_oldest_images_make_room_for_the_newest(bench: Bench) -> None:
    mib = 2**20
    await bench.ask(text("look around"))
    for number in range(12):
        bench.artifacts.bodies[f"art_{number}"] = b"image %d" % number
        await round_of(bench, f"look{number}", image(f"art_{number}", size=2 * mib))
        prepared = await bench.prepare(round=number + 1)
        newest = base64.b64encode(b"image %d" % number)
        assert b'"data":"%b"' % newest in prepared.body
        assert closed(prepared.body)
    last = await bench.prepare(round=13)
    assert 3 <= last.body.count(b'"type":"image"') <= 6
    assert base64.b64encode(b"image 0") not in last.body
    assert not last.snapshot.checkpoint_id
