"""Tool calls: prepared once, started once, completed by whoever started them."""

import asyncio
from datetime import timedelta

import pytest
from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from foundation.storage.testing import assert_schema_matches, assert_sql_prepares
from services.journal import store
from services.journal.projector import project
from services.journal.redaction import Redactor
from services.journal.schema import metadata
from services.journal.service import Journal
from tests.services.journal.bench import (
    AMBIGUOUS,
    COMPLETED,
    FOREIGN,
    NONCE,
    OTHER_NONCE,
    PREPARED,
    RECEIVED,
    RING,
    SCOPE,
    STARTED,
    Bench,
    new,
    projecting,
    seen,
    text,
    texts,
)
from tests.services.journal.pictures import POLICY
from tests.support.postgres import SessionPostgres


async def test_schema_and_sql_agree(postgres: SessionPostgres) -> None:
    async with postgres.database("journal") as dsn:
        await assert_schema_matches("journal", metadata, dsn)
        assert await assert_sql_prepares(store, dsn) > 10


async def test_a_call_from_beginning_to_end(bench: Bench) -> None:
    (prepared,) = await bench.prepare(new("op_1", index=4))
    assert (prepared.state, prepared.block_index, prepared.tool_name) == (PREPARED, 4, "search")
    assert (prepared.turn_id, prepared.round, prepared.attempt) == ("turn_1", 2, SCOPE.attempt)
    started = await bench.start()
    assert started.state == STARTED
    elapsed = started.deadline_at.ToDatetime() - started.started_at.ToDatetime()
    assert abs(elapsed - timedelta(minutes=1)) < timedelta(milliseconds=10)
    completed = await bench.complete(text("found"))
    assert completed.state == COMPLETED
    expected = project(text("found").content, is_error=False, policy=POLICY).projected
    found = completed.projection
    assert (found.body, found.digest, completed.redactor) == expected
    assert list(await bench.get()) == [completed]
    assert list(await bench.fence(1)) == [completed]


async def test_preparing_again_changes_nothing(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    await bench.start()
    again = await bench.prepare(new("op_2", index=1), new("op_1"))
    assert [(o.id, o.state) for o in again] == [("op_2", PREPARED), ("op_1", STARTED)]


async def test_another_input_for_a_prepared_call_is_refused(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    with pytest.raises(Failure) as caught:
        await bench.prepare(new("op_1", b'{"a":1.1}'))
    assert caught.value.reason == reasons.ERROR_REASON_DIGEST_MISMATCH


async def test_the_same_nonce_starts_once_and_gets_the_same_answer(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    first = await bench.start()
    assert await bench.start() == first
    with pytest.raises(Failure) as caught:
        await bench.start(nonce=OTHER_NONCE)
    assert caught.value.reason == reasons.ERROR_REASON_OPERATION_REFUSED


async def test_of_two_racing_starts_one_wins(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    answers = await asyncio.gather(
        *(bench.start(nonce=bytes([n]) * 16) for n in range(8)), return_exceptions=True
    )
    winners = [a for a in answers if isinstance(a, pb.Operation)]
    assert len(winners) == 1
    assert {a.reason for a in answers if isinstance(a, Failure)} == {
        reasons.ERROR_REASON_OPERATION_REFUSED
    }
    winner = answers.index(winners[0])
    assert (await bench.complete(text("x"), nonce=bytes([winner]) * 16)).state == COMPLETED


async def test_a_call_that_was_not_prepared_does_not_start(bench: Bench) -> None:
    with pytest.raises(Failure) as caught:
        await bench.start()
    assert caught.value.reason == reasons.ERROR_REASON_NOT_FOUND


async def test_only_the_nonce_of_the_start_completes(bench: Bench) -> None:
    await bench.prepare(new("op_1"), new("op_2", index=1))
    await bench.start()
    for id, nonce in [("op_1", OTHER_NONCE), ("op_2", NONCE)]:
        with pytest.raises(Failure) as caught:
            await bench.complete(text("x"), id, nonce)
        assert caught.value.reason == reasons.ERROR_REASON_OPERATION_REFUSED
    with pytest.raises(Failure) as caught:
        await bench.complete(text("x"), "op_3")
    assert caught.value.reason == reasons.ERROR_REASON_NOT_FOUND


async def test_completing_needs_no_epoch(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    await bench.start()
    await bench.fence(9)
    assert (await bench.complete(text("x"))).state == COMPLETED


async def test_a_repeated_outcome_is_the_same_and_another_is_refused(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    await bench.start()
    first = await bench.complete(text("x"))
    assert await bench.complete(text("x")) == first
    for other in (text("y"), text("x", is_error=True)):
        with pytest.raises(Failure) as caught:
            await bench.complete(other)
        assert caught.value.reason == reasons.ERROR_REASON_DIGEST_MISMATCH


async def test_an_empty_outcome_is_an_outcome(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    await bench.start()
    first = await bench.complete(pb.Outcome())
    assert texts(first) == []
    assert await bench.complete(pb.Outcome()) == first


async def test_a_receipt_is_projected_never_run_again(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    await bench.start()
    received = await bench.receive(seen("x"))
    assert received.state == RECEIVED
    assert not received.HasField("projection")
    assert await bench.receive(seen("x")) == received
    for other in (seen("y"), text("y")):
        with pytest.raises(Failure) as caught:
            await bench.complete(other)
        assert caught.value.reason == reasons.ERROR_REASON_DIGEST_MISMATCH
    completed = await bench.complete(seen("x"))
    assert (completed.state, texts(completed)) == (COMPLETED, ["x"])
    assert await bench.complete(seen("x")) == completed
    assert await bench.receive(seen("x")) == completed


async def test_an_outcome_after_the_closure_is_kept_beside_it_once(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    await bench.start()
    (closed,) = await bench.close()
    assert closed.state == AMBIGUOUS
    late = await bench.complete(text("x"))
    assert late.has_late_outcome
    assert (late.state, late.projection) == (AMBIGUOUS, closed.projection)
    assert await bench.complete(text("x")) == late
    with pytest.raises(Failure) as caught:
        await bench.complete(text("y"))
    assert caught.value.reason == reasons.ERROR_REASON_DIGEST_MISMATCH


async def test_a_repeated_start_of_a_closed_call_is_refused(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    await bench.start()
    await bench.close()
    with pytest.raises(Failure) as caught:
        await bench.start()
    assert caught.value.reason == reasons.ERROR_REASON_OPERATION_REFUSED


async def test_an_outcome_without_projection_still_completes(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    await bench.start()
    completed = await bench.complete(pb.Outcome(content=b"not json"))
    assert completed.state == COMPLETED
    assert completed.projection.body == b'{"code":"projection_failed","kind":"failure","v":1}'


async def test_large_outcomes_leave_the_loop_alone_and_arrive(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    await bench.start()
    completed = await bench.complete(text("x" * 400_000))
    assert "[398,000 characters are left out here]" in texts(completed)[0]


async def test_stale_epochs_are_fenced(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    await bench.fence(5)
    for attempt in (
        bench.prepare(new("op_2"), epoch=4),
        bench.start(epoch=4),
        bench.start_model_call(epoch=4),
        bench.complete_model_call(epoch=4),
        bench.answer(text("x"), epoch=4),
        bench.close(epoch=4),
        bench.fence(4),
    ):
        with pytest.raises(Failure) as caught:
            await attempt
        assert caught.value.reason == reasons.ERROR_REASON_FENCED
        assert caught.value.metadata["epoch_max"] == "5"
    assert [o.state for o in await bench.get("op_1", "op_2")] == [PREPARED]


async def test_every_write_raises_the_epoch(bench: Bench) -> None:
    await bench.prepare(new("op_1"), epoch=2)
    await bench.prepare(new("op_1"), epoch=3)  # changes nothing else
    with pytest.raises(Failure):
        await bench.start(epoch=2)
    await bench.close(epoch=4)
    await bench.close(epoch=5)  # changes nothing else
    with pytest.raises(Failure):
        await bench.fence(4)
    await bench.fence(5)


async def test_a_foreign_workspace_finds_and_changes_nothing(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    await bench.start()
    assert not await bench.get(thread=FOREIGN)
    assert not await bench.inspect(FOREIGN)
    for attempt in (
        bench.start(thread=FOREIGN),
        bench.complete(text("x"), thread=FOREIGN),
    ):
        with pytest.raises(Failure) as caught:
            await attempt
        assert caught.value.reason == reasons.ERROR_REASON_NOT_FOUND
    assert (await bench.get())[0].state == STARTED
    await bench.prepare(new("op_1"), thread=FOREIGN)
    assert (await bench.get())[0].state == STARTED


async def test_unknown_ids_are_left_out(bench: Bench) -> None:
    await bench.prepare(new("op_1"), new("op_2", index=1))
    assert [o.id for o in await bench.get("op_2", "op_9", "op_1")] == ["op_2", "op_1"]


async def test_names_that_the_model_invents_are_kept_whatever_they_hold(bench: Bench) -> None:
    """A database's text cannot hold U+0000."""
    odd = "no\u0000body \U0001f600"
    await bench.start_model_call()
    (made,) = await bench.complete_model_call(new("op_1", tool_name=odd))
    assert made.tool_name == odd
    assert [o.tool_name for o in await bench.get()] == [odd]
    assert [o.tool_name for o in await bench.inspect()] == ["", odd]
    await bench.tombstone()
    assert not any(o.tool_name for o in await bench.inspect())


async def test_a_denial_is_a_kind_of_its_own_and_only_clients_deny(bench: Bench) -> None:
    denial = pb.Outcome(denial=pb.Denial(reason="not today"))
    await bench.prepare(new("op_1"), new("op_2", index=1))
    (denied,) = await bench.answer(denial)
    assert denied.projection.body == b'{"kind":"denied","reason":"not today","v":1}'
    assert list(await bench.answer(denial)) == [denied]
    assert texts(denied) == ["The call was denied and did not run. Reason given: not today"]
    await bench.start("op_2")
    with pytest.raises(Failure) as caught:
        await bench.complete(denial, "op_2")
    assert caught.value.reason == reasons.ERROR_REASON_INVALID_FIELD


async def test_the_version_of_the_patterns_is_kept_with_what_went_through_them(
    bench: Bench,
) -> None:
    redactor = Redactor(("secret",))
    bench.service = Journal(bench.db, RING, projecting(redactor=redactor, workers=bench.workers))
    await bench.prepare(new("op_1"), new("op_2", index=1), new("op_3", index=2))
    await bench.start()
    completed = await bench.complete(text("a secret"))
    await bench.start("op_2")
    await bench.receive(seen("a secret"), "op_2")
    closed = await bench.close("op_2", "op_3")
    for one, said in ((completed, "a [redacted]"), (closed[0], "a [redacted]")):
        assert (texts(one), one.redactor) == ([said], redactor.version)
    assert closed[1].redactor == ""
    assert list(await bench.get("op_1", "op_2")) == [completed, closed[0]]
