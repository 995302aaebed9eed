"""A redacted answer leaves nothing but calls with a fixed input, and requests stay valid."""

import json
from typing import Any

import pytest
from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.transcript.v1 import transcript_pb2, transcript_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.outcomes import REDACTED_INPUT, REDACTED_INPUT_TEXT
from services.context import answers
from services.context.losses import NO_LOSSES
from services.context.records import Records
from services.context.reducer import HistoryCorruptError, input_digest, reduce
from services.context.targets import Search
from services.context.transitions import (
    ANSWER_PART,
    Current,
    Folded,
    RefusedTransition,
    Target,
    answer,
    answer_blocks,
    check,
    fold,
    omission,
    transition,
    unreadable,
)
from tests.services.context.conftest import THREAD, Bench
from tests.services.context.histories import History, projection, text, use, written
from tests.services.context.test_making_it_fit import small, turn_of
from tests.services.context.test_redaction import KEY, SECRET, opened, redact, refused

THINKING = b'{"type":"thinking","thinking":"<<hunter2>>","signature":"s"}'
CALL = use("toolu_a", '{"key": "<<hunter2>>"}')
SEARCH = b'{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}'
FOUND = b'{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}'


async def erase(bench: Bench, seq: int) -> None:
    """What the command does in the transcript afterwards."""
    stub = transcript_pb2_grpc.TranscriptServiceStub(bench.host.channel("service"))
    request = transcript_pb2.RedactEntryRequest(thread=THREAD, seq=seq, reader="o", reason="r")
    await stub.RedactEntry(request)


async def called(bench: Bench) -> None:
    await bench.ask(text("go"))
    await bench.answer(THINKING, text(f"It is {SECRET}."), CALL, text(SECRET), uses=(2,))
    await bench.results(_2=projection("done"))
    await bench.answer(text("ended"))
    await bench.ask(text("go on"))


async def test_an_answer_is_shown_as_calls_with_a_fixed_input(bench: Bench) -> None:
    await called(bench)
    before = await bench.prepare()
    assert SECRET in before.body.decode()
    stale = bench.another()
    await stale.PrepareRequest(bench.request(number=2), None)
    response = await redact(bench, entry_seq=2)
    (found,) = response.targets
    assert (found.seq, found.is_answer, found.created) == (2, True, True)
    assert list(found.call_operation_ids) == ["op_2_2"]
    bodies = [
        (await one.PrepareRequest(bench.request(number=number), None)).prepared.body
        for number, one in enumerate((bench.service, stale, bench.another()), start=3)
    ]
    await erase(bench, 2)
    last = await bench.prepare(number=9)
    cold = (await bench.another().PrepareRequest(bench.request(number=10), None)).prepared
    assert {*bodies, last.body, cold.body} == {last.body}
    said = json.loads(last.body)["messages"]
    assert said[1]["content"] == [
        {"type": "text", "text": REDACTED_INPUT_TEXT},
        {"type": "tool_use", "id": "toolu_a", "name": "t", "input": json.loads(REDACTED_INPUT)},
    ]
    assert said[2]["content"][0]["tool_use_id"] == "toolu_a"
    assert await bench.rebuild(last.snapshot.id) == last.body
    assert await refused(bench.rebuild(before.snapshot.id)) == reasons.ERROR_REASON_WRONG_STATE
    (again,) = (await redact(bench, entry_seq=2)).targets
    assert (again.created, again.transition_id) == (False, found.transition_id)
    assert SECRET.encode() not in await opened(bench)
    verified = await bench.another().VerifyContext(
        pb.VerifyContextRequest(thread=THREAD, requests=True), None
    )
    assert all(one.informational for one in verified.findings), verified


async def test_a_summary_that_covers_it_is_made_again_without_it(bench: Bench) -> None:
    pinned = small()
    await bench.ask(text("go"))
    await bench.answer(text(f"It is {SECRET}."))
    for number in range(7):
        await turn_of(bench, f"t{number}", "x" * 6_600)
    await bench.ask(text("and now?"))
    first = await bench.prepare(pinned=pinned)
    assert SECRET in first.body.decode()
    assert (await redact(bench, entry_seq=2)).revoked_checkpoints == 1
    await erase(bench, 2)
    second = await bench.prepare(number=2, pinned=pinned)
    assert second.snapshot.checkpoint_id not in ("", first.snapshot.checkpoint_id)
    assert SECRET not in second.body.decode()
    assert SECRET.encode() not in await opened(bench)


async def test_answers_that_share_a_provider_s_tool_go_together_and_the_named_one_last(
    bench: Bench,
) -> None:
    await bench.ask(text("go"))
    await bench.answer(text("I search."), SEARCH)
    await bench.answer(FOUND, text(SECRET))
    await bench.answer(text("ended"))
    await bench.ask(text("go on"))
    response = await redact(bench, entry_seq=2)
    assert [one.seq for one in response.targets] == [3, 2]
    said = json.loads((await bench.prepare()).body)["messages"]
    kinds = [block["type"] for message in said for block in message["content"]]
    assert set(kinds) == {"text"}
    # Cut off behind the first erasure: the rest is still known.
    await erase(bench, 3)
    assert [one.seq for one in (await redact(bench, entry_seq=2)).targets] == [2]
    await erase(bench, 2)
    assert not (await redact(bench, entry_seq=2)).targets[0].created


async def test_what_an_answer_read_again_goes_with_it(bench: Bench) -> None:
    """Afterwards its input is gone, and nobody could tell what the result repeats."""
    await turn_of(bench, "a", SECRET)
    call = b'{"type":"tool_use","id":"toolu_r","name":"read_archive","input":{"ref":"op_2_1"}}'
    await bench.ask(text("read it again"))
    await bench.answer(call, use("toolu_b"), uses=(0, 1))
    await bench.results(_0=projection(SECRET), _1=projection("harmless"))
    await bench.answer(text("done"))
    await bench.ask(text("go on"))
    response = await redact(bench, entry_seq=6)
    assert [(t.seq, t.operation_id) for t in response.targets] == [(7, "op_6_0"), (6, "")]
    await erase(bench, 6)
    assert [t.seq for t in (await redact(bench, operation_id="op_2_1")).targets] == [3]
    made = await bench.prepare()
    assert SECRET not in made.body.decode()
    assert "harmless" in made.body.decode()


async def test_an_erased_answer_of_a_copy_that_is_not_whole_waits(bench: Bench) -> None:
    await called(bench)
    await erase(bench, 2)  # as it comes with a copied transcript, before its transition
    assert await refused(redact(bench, entry_seq=2)) == reasons.ERROR_REASON_WRONG_STATE
    assert (await Records(bench.db, bench.ring).newest(KEY)).version == 0


def history() -> History:
    return History().ask().answer(THINKING, CALL).results(projection("done"))


def shown(losses: Any, made: History) -> str:
    return b"".join(written(reduce(made.entries, made.projections, losses).items)).decode()


def test_an_answer_whose_record_cannot_be_read_is_withheld() -> None:
    made, target = history(), Target(2, ANSWER_PART)
    losses = NO_LOSSES.with_transitions([unreadable("tran_1", *target, 1)], 1)
    assert SECRET not in shown(losses, made)
    assert "toolu_a" in shown(losses, made)
    made.entries[1].ClearField("content")
    with pytest.raises(HistoryCorruptError, match="has no content"):
        shown(losses, made)


def test_of_an_answer_nothing_but_a_redaction_is_recorded() -> None:
    target, before = Target(2, ANSWER_PART), Folded(b"", input_digest([CALL]), "", 0)
    redaction = transition(KEY, target, before, answer(answers.stand_in([CALL])), "redaction")
    check(redaction, Current(before, b"", 0), 9, 0)
    folded = fold(before.digest, [redaction])
    assert folded.is_redacted
    assert answer_blocks(folded) == answers.stand_in([CALL])
    for body, reason in ((omission([0]), "redaction"), (redaction.replacement, "pruned")):
        other = transition(KEY, target, before, body, reason)  # pyright: ignore[reportArgumentType]
        with pytest.raises(RefusedTransition):
            check(other, Current(before, b"", 10), 0, 0)


def test_what_stands_for_an_answer_keeps_places_ids_and_names_exactly() -> None:
    odd = b'{"type":"tool_use","id":"\\u0074oolu","name":"a\\u0000","input":{"x":1}}'
    blocks = answers.stand_in([b"no json", odd, THINKING, text(SECRET), SEARCH])
    assert len(blocks) == 5
    assert b'"id":"\\u0074oolu","name":"a\\u0000"' in blocks[1]
    said = [json.loads(block).get("text", "") for block in blocks]
    assert said == [REDACTED_INPUT_TEXT, "", "", "", ""]
    assert answers.shared_ids([SEARCH, odd]) == answers.shared_ids([FOUND]) == {b'"srvtoolu_1"'}


def test_answers_are_linked_through_others_between_them() -> None:
    made, found = History().ask(), Search(entry_seq=2)
    second = SEARCH.replace(b"_1", b"_2")
    for blocks in ([SEARCH], [FOUND, second], [FOUND.replace(b"_1", b"_2")], [text("alone")]):
        made.answer(*blocks)
    for entry in made.entries:
        found.add(entry)
    assert [one.target.seq for one in found.found] == [3, 4, 2]
