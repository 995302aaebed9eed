"""Client answers, closures, deletion and the operator's view."""

import asyncio

import pytest
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from foundation.outcomes import MAY_HAVE_RUN_TEXT, NOT_RUN_TEXT
from tests.services.journal.bench import (
    ABANDONED,
    AMBIGUOUS,
    COMPLETED,
    MODEL,
    PREPARED,
    STARTED,
    TOOL,
    Bench,
    new,
    seen,
    text,
    texts,
)


async def test_answers_become_outcomes_in_one_commit(bench: Bench) -> None:
    await bench.prepare(new("op_1"), new("op_2", index=1))
    answered = await bench.answer(text("yes"), "op_2", "op_1")
    assert [(o.id, o.state, texts(o)) for o in answered] == [
        ("op_2", COMPLETED, ["yes"]),
        ("op_1", COMPLETED, ["yes"]),
    ]
    assert answered[1].tool_name == "search"
    assert await bench.answer(text("yes"), "op_2", "op_1") == answered
    assert await bench.get("op_2", "op_1") == answered


async def test_an_answer_to_an_unprepared_call_is_recorded(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    first, second = await bench.answer(text("yes"), "op_1", "op_2")
    assert (first.state, second.state) == (COMPLETED, COMPLETED)
    assert (second.kind, second.turn_id, second.block_index) == (TOOL, "turn_1", -1)
    (again,) = await bench.prepare(new("op_2"))
    assert again == second


async def test_another_answer_is_kept_late_and_the_stored_one_returned(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    (first,) = await bench.answer(text("yes"))
    for other in ("no", "never"):
        (again,) = await bench.answer(text(other))
        assert again.has_late_outcome
        assert again.projection == first.projection
    assert await bench.sql("SELECT count(*) FROM journal.outcomes WHERE role = 3") == 1


async def test_an_answer_decides_a_started_call_and_the_executor_is_late(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    await bench.start()
    (answered,) = await bench.answer(text("closed by the client"))
    assert answered.state == COMPLETED
    late = await bench.complete(text("the real one"))
    assert late.has_late_outcome
    assert late.projection == answered.projection
    assert await bench.complete(text("the real one")) == late


async def test_an_answer_wins_over_a_receipt_which_is_kept_late(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    await bench.start()
    await bench.receive(seen("received"))
    await bench.answer(text("answer"))
    (found,) = await bench.get()
    assert (texts(found), found.has_late_outcome) == (["answer"], True)
    assert await bench.complete(seen("received")) == found


async def test_the_executors_own_outcome_as_an_answer_changes_nothing(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    await bench.start()
    completed = await bench.complete(text("x"))
    assert list(await bench.answer(text("x"))) == [completed]


async def test_closing_says_what_may_have_run(bench: Bench) -> None:
    await bench.prepare(*(new(f"op_{n}", index=n) for n in range(4)))
    for n in (1, 2, 3):
        await bench.start(f"op_{n}")
    await bench.receive(seen("received"), "op_2")
    await bench.complete(text("done"), "op_3")
    closed = await bench.close("op_9", "op_0", "op_1", "op_2", "op_3")
    assert [(o.state, texts(o)) for o in closed] == [
        (ABANDONED, [NOT_RUN_TEXT]),
        (ABANDONED, [NOT_RUN_TEXT]),
        (AMBIGUOUS, [MAY_HAVE_RUN_TEXT]),
        (COMPLETED, ["received"]),
        (COMPLETED, ["done"]),
    ]
    assert await bench.close("op_9", "op_0", "op_1", "op_2", "op_3") == closed
    assert (await bench.complete(seen("received"), "op_2")).state == COMPLETED


async def test_a_call_that_was_closed_unprepared_never_starts(bench: Bench) -> None:
    await bench.close("op_1")
    (prepared,) = await bench.prepare(new("op_1"))
    assert prepared.state == ABANDONED
    with pytest.raises(Failure) as caught:
        await bench.start()
    assert caught.value.reason == reasons.ERROR_REASON_OPERATION_REFUSED


async def test_an_answer_to_a_closed_call_is_late(bench: Bench) -> None:
    (closed,) = await bench.close("op_1")
    (answered,) = await bench.answer(text("too late"))
    assert answered.state == ABANDONED
    assert answered.has_late_outcome
    assert answered.projection == closed.projection


async def test_a_start_races_a_closure_and_one_of_them_wins(bench: Bench) -> None:
    for n in range(6):
        id = f"op_{n}"
        await bench.prepare(new(id, index=n))
        started, closed = await asyncio.gather(
            bench.start(id), bench.close(id), return_exceptions=True
        )
        assert not isinstance(closed, BaseException)
        expected = ABANDONED if isinstance(started, Failure) else AMBIGUOUS
        assert [o.state for o in closed] == [expected]


async def test_racing_answers_agree_on_one(bench: Bench) -> None:
    answers = await asyncio.gather(
        *(bench.answer(text(f"answer {n}"), "op_1", "op_2") for n in range(6))
    )
    for index in (0, 1):
        assert len({a[index].projection.digest for a in answers}) == 1


async def test_a_completion_races_a_closure_without_loss(bench: Bench) -> None:
    for n in range(6):
        id = f"op_{n}"
        await bench.prepare(new(id, index=n))
        await bench.start(id)
        await asyncio.gather(bench.complete(text("x"), id), bench.close(id))
        (found,) = await bench.get(id)
        if found.state == COMPLETED:
            assert texts(found) == ["x"]
        else:
            assert (found.state, found.has_late_outcome) == (AMBIGUOUS, True)


async def test_a_tombstone_closes_what_is_open_and_erases(bench: Bench) -> None:
    await bench.prepare(*(new(f"op_{n}", index=n) for n in range(4)))
    for n in (1, 2, 3):
        await bench.start(f"op_{n}")
    await bench.receive(seen("received"), "op_2")
    await bench.complete(text("done"), "op_3")
    await bench.start_model_call()
    for _ in range(2):
        await bench.tombstone()
    found = {o.id: o for o in await bench.inspect()}
    assert {id: o.state for id, o in found.items()} == {
        "op_0": ABANDONED,
        "op_1": AMBIGUOUS,
        "op_2": COMPLETED,
        "op_3": COMPLETED,
        "op_m": AMBIGUOUS,
    }
    assert not any(o.HasField("projection") or o.tool_name for o in found.values())
    for statement in (
        "SELECT count(*) FROM journal.operations WHERE input IS NOT NULL",
        "SELECT count(*) FROM journal.outcomes WHERE coalesce(raw, projection) IS NOT NULL",
    ):
        assert await bench.sql(statement) == 0


async def test_a_tombstone_refuses_every_later_write(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    await bench.start()
    await bench.tombstone()
    high = 2**62
    for attempt in (
        bench.fence(high),
        bench.prepare(new("op_2"), epoch=high),
        bench.start(epoch=high),
        bench.start_model_call(epoch=high),
        bench.complete_model_call(epoch=high),
        bench.answer(text("x"), epoch=high),
        bench.close(epoch=high),
        bench.complete(text("x")),
    ):
        with pytest.raises(Failure) as caught:
            await attempt
        assert caught.value.reason == reasons.ERROR_REASON_DELETED
    assert await bench.sql("SELECT count(*) FROM journal.operations") == 1
    assert await bench.sql("SELECT count(*) FROM journal.outcomes") == 0


async def test_a_tombstone_of_an_unknown_thread_holds(bench: Bench) -> None:
    await bench.tombstone()
    with pytest.raises(Failure) as caught:
        await bench.prepare(new("op_1"))
    assert caught.value.reason == reasons.ERROR_REASON_DELETED


async def test_inspecting_leaves_a_record_that_cannot_be_changed(bench: Bench) -> None:
    await bench.prepare(new("op_1"), new("op_2", index=1))
    assert [o.state for o in await bench.inspect()] == [PREPARED, PREPARED]
    row = await bench.db.fetchrow("SELECT reader, purpose, operations FROM journal.access")
    assert row is not None
    assert tuple(row) == ("ops", "why not", 2)
    for statement in ("DELETE FROM journal.access", "UPDATE journal.access SET reader = 'x'"):
        with pytest.raises(Exception, match="refuses"):
            await bench.sql(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE journal.operations SET state = 1 WHERE operation_id = 'op_1'",
        "UPDATE journal.operations SET turn_id = 'x'",
        "UPDATE journal.operations SET nonce_digest = 'x' WHERE operation_id = 'op_1'",
        "DELETE FROM journal.operations",
        "TRUNCATE journal.operations",
        "UPDATE journal.outcomes SET projection = 'x'",
        "UPDATE journal.outcomes SET raw = NULL, projection = NULL, source = 2",
        "DELETE FROM journal.outcomes",
        "DELETE FROM journal.fences",
    ],
)
async def test_the_database_refuses_to_rewrite(bench: Bench, statement: str) -> None:
    await bench.prepare(new("op_1"))
    await bench.start()
    await bench.complete(text("x"))
    with pytest.raises(Exception, match=r"append-only|refuses|cannot|starts once"):
        await bench.sql(statement)


async def test_bodies_rest_sealed(bench: Bench) -> None:
    await bench.prepare(new("op_1", b'{"secret":1}'))
    await bench.start()
    await bench.complete(text("secret"))
    raw, projection, input = await bench.sql(
        "SELECT ARRAY[d.raw, d.projection, o.input]"
        " FROM journal.outcomes d JOIN journal.operations o USING (operation_id)"
    )
    for stored in (raw, projection, input):
        assert b"secret" not in stored


async def test_a_body_moved_to_another_row_does_not_open(bench: Bench) -> None:
    await bench.answer(text("a"), "op_1")
    await bench.answer(text("b"), "op_2")
    await bench.sql("ALTER TABLE journal.outcomes DISABLE TRIGGER ALL")
    await bench.sql(
        "UPDATE journal.outcomes o SET projection = p.projection FROM journal.outcomes p"
        " WHERE p.operation_id <> o.operation_id"
    )
    with pytest.raises(Failure) as caught:
        await bench.get("op_1")
    assert caught.value.reason == reasons.ERROR_REASON_CORRUPT


async def test_provider_calls_are_closed_without_projection(bench: Bench) -> None:
    await bench.start_model_call()
    (started, absent) = await bench.close("op_m", "op_n", kind=MODEL)
    assert (started.state, absent.state) == (AMBIGUOUS, ABANDONED)
    assert absent.kind == MODEL
    assert not started.HasField("projection")
    assert not absent.HasField("projection")


async def test_fence_closes_provider_calls_of_other_turns(bench: Bench) -> None:
    await bench.start_model_call("op_old", turn_id="turn_0")
    await bench.start_model_call("op_own")
    await bench.prepare(new("op_1"))
    assert [o.id for o in await bench.fence(1)] == ["op_own", "op_1"]
    assert [o.state for o in await bench.get("op_old", "op_own")] == [AMBIGUOUS, STARTED]


async def test_a_takeover_declares_the_lost_owners_provider_calls_ambiguous(bench: Bench) -> None:
    """Those of the same turn too: nobody waits for them any more. A stored answer completes one."""
    await bench.start_model_call("op_lost")
    await bench.prepare(new("op_1"))
    await bench.start("op_1")
    await bench.fence(2)
    assert [o.state for o in await bench.get("op_lost", "op_1")] == [AMBIGUOUS, STARTED]
    await bench.complete_model_call(operation_id="op_lost", epoch=2)
    assert [o.state for o in await bench.get("op_lost")] == [COMPLETED]
