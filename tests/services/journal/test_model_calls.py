"""Provider calls: started once; the answer in the transcript completes them, whoever says so."""

import asyncio

import pytest
from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import failpoints
from foundation.errors import Failure
from tests.services.journal.bench import (
    AMBIGUOUS,
    ANSWERED,
    COMPLETED,
    FAILED,
    MODEL,
    OTHER_NONCE,
    PREPARED,
    STARTED,
    Bench,
    new,
    text,
)


async def state(bench: Bench) -> int:
    return (await bench.get("op_m"))[0].state


async def test_a_provider_call_from_beginning_to_end(bench: Bench) -> None:
    started = await bench.start_model_call()
    assert (started.state, started.kind, started.snapshot_id) == (STARTED, MODEL, "snap_1")
    assert started.block_index == -1
    calls = await bench.complete_model_call(new("op_1"), new("op_2", index=1))
    assert [(c.id, c.state) for c in calls] == [("op_1", PREPARED), ("op_2", PREPARED)]
    assert await state(bench) == COMPLETED
    assert await bench.complete_model_call(new("op_1"), new("op_2", index=1)) == calls
    assert await bench.get("op_1", "op_2") == calls


async def test_one_nonce_starts_a_provider_call(bench: Bench) -> None:
    first = await bench.start_model_call()
    assert await bench.start_model_call() == first
    with pytest.raises(Failure) as caught:
        await bench.start_model_call(nonce=OTHER_NONCE)
    assert caught.value.reason == reasons.ERROR_REASON_OPERATION_REFUSED


async def test_of_two_racing_provider_calls_one_starts(bench: Bench) -> None:
    answers = await asyncio.gather(
        *(bench.start_model_call(nonce=bytes([n]) * 16) for n in range(6)), return_exceptions=True
    )
    assert sum(isinstance(a, pb.Operation) for a in answers) == 1


@pytest.mark.parametrize("before", ["absent", "started", "ambiguous", "abandoned", "failed"])
async def test_an_answer_completes_the_call_from_every_state(bench: Bench, before: str) -> None:
    if before in ("started", "ambiguous", "failed"):
        await bench.start_model_call()
    if before in ("ambiguous", "abandoned"):
        await bench.close("op_m", kind=MODEL)
    if before == "failed":
        await bench.complete_model_call(outcome=FAILED)
    calls = await bench.complete_model_call(new("op_1"), epoch=4)
    assert [c.state for c in calls] == [PREPARED]
    assert await state(bench) == COMPLETED


async def test_a_later_owner_repeats_the_preparation(bench: Bench) -> None:
    await bench.start_model_call()
    await bench.complete_model_call(new("op_1"), new("op_2", index=1))
    await bench.start("op_1")
    again = await bench.complete_model_call(new("op_1"), new("op_2", index=1), epoch=2)
    assert [c.state for c in again] == [STARTED, PREPARED]


async def test_another_answer_is_refused(bench: Bench) -> None:
    await bench.start_model_call()
    await bench.complete_model_call(new("op_1"))
    with pytest.raises(Failure) as caught:
        await bench.complete_model_call(new("op_1"), answer=b"b" * 32)
    assert caught.value.reason == reasons.ERROR_REASON_DIGEST_MISMATCH
    with pytest.raises(Failure) as caught:
        await bench.complete_model_call(new("op_1", b"{}"))
    assert caught.value.reason == reasons.ERROR_REASON_DIGEST_MISMATCH
    with pytest.raises(Failure) as caught:
        await bench.complete_model_call(outcome=FAILED)
    assert caught.value.reason == reasons.ERROR_REASON_OPERATION_REFUSED


async def test_how_a_call_ended_can_be_asked(bench: Bench) -> None:
    await bench.start_model_call()
    assert (await bench.get("op_m"))[0].model_call_outcome == 0
    await bench.complete_model_call(outcome=FAILED)
    assert (await bench.get("op_m"))[0].model_call_outcome == FAILED
    await bench.complete_model_call(new("op_1"))
    assert [one.model_call_outcome for one in await bench.get("op_m", "op_1")] == [ANSWERED, 0]


async def test_a_failed_call_is_completed_without_calls(bench: Bench) -> None:
    await bench.start_model_call()
    for _ in range(2):
        assert not await bench.complete_model_call(outcome=FAILED)
    assert await state(bench) == COMPLETED
    assert await bench.sql("SELECT failure FROM journal.operations") == "overloaded"


async def test_a_failure_does_not_undo_a_closure(bench: Bench) -> None:
    await bench.start_model_call()
    await bench.close("op_m", kind=MODEL)
    await bench.complete_model_call(outcome=FAILED)
    assert await state(bench) == AMBIGUOUS


async def test_kinds_are_not_confused(bench: Bench) -> None:
    await bench.start_model_call()
    await bench.prepare(new("op_1"))
    for attempt in (
        bench.start("op_m"),
        bench.complete(text("x"), "op_m"),
        bench.answer(text("x"), "op_m"),
        bench.start_model_call("op_1"),
        bench.complete_model_call(operation_id="op_1"),
        bench.prepare(new("op_m")),
    ):
        with pytest.raises(Failure) as caught:
            await attempt
        assert caught.value.reason == reasons.ERROR_REASON_OPERATION_REFUSED
    assert await state(bench) == STARTED


@pytest.mark.parametrize("crash", ["before", "after"])
async def test_completion_and_preparation_are_one_commit(bench: Bench, crash: str) -> None:
    await bench.start_model_call()

    async def die(name: str) -> None:
        if name == f"journal.complete_model_call.{crash}":
            raise RuntimeError("power cut")

    failpoints.install(die)
    with pytest.raises(RuntimeError, match="power cut"):
        await bench.complete_model_call(new("op_1"))
    failpoints.install(None)
    states = [o.state for o in await bench.get("op_m", "op_1")]
    assert states == ([STARTED] if crash == "before" else [COMPLETED, PREPARED])
    assert len(await bench.complete_model_call(new("op_1"))) == 1


async def test_the_parts_of_an_end_must_belong_together(bench: Bench) -> None:
    with pytest.raises(Failure) as caught:
        await bench.complete_model_call(answer=b"short")
    assert caught.value.path == "answer_digest"
    with pytest.raises(Failure) as caught:
        await bench.complete_model_call(new("op_1"), new("op_1"))
    assert caught.value.path == "calls"
