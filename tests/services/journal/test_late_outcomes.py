"""The real outcome of a call that was declared ambiguous waits until history tells of it."""

import json

import pytest
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from foundation.outcomes import MAY_HAVE_RUN_TEXT
from tests.services.journal.bench import FOREIGN, Bench, new, text, texts


async def closed_then_completed(bench: Bench, *operation_ids: str) -> None:
    """Started, closed as ambiguous, completed by the executor after all."""
    for id in operation_ids:
        await bench.prepare(new(id, tool_name=f"tool of {id}"))
        await bench.start(id)
        await bench.close(id)
        await bench.complete(text(f"outcome of {id}", is_error=id == "op_2"), id)


async def test_late_outcomes_are_listed_until_they_are_noted(bench: Bench) -> None:
    await closed_then_completed(bench, "op_1", "op_2")
    first, second = await bench.late()
    assert (first.operation_id, first.tool_name) == ("op_1", "tool of op_1")
    shown = [json.loads(one.projection.body) for one in (first, second)]
    assert [one["parts"][0]["text"] for one in shown] == ["outcome of op_1", "outcome of op_2"]
    assert ["is_error" in one for one in shown] == [False, True]
    for _ in range(2):
        await bench.note("op_1")
        assert [one.operation_id for one in await bench.late()] == ["op_2"]
    await bench.note("op_1", "op_2")
    assert not await bench.late()


async def test_a_late_outcome_changes_nothing_in_place(bench: Bench) -> None:
    await closed_then_completed(bench, "op_1")
    for _ in range(2):
        (found,) = await bench.get()
        assert texts(found) == [MAY_HAVE_RUN_TEXT]
        assert found.has_late_outcome
        await bench.note()


async def test_only_what_history_does_not_say_already_is_late(bench: Bench) -> None:
    """Answers that won over an executor, and answers to closed calls, leave nothing to tell."""
    await bench.prepare(new("op_1"), new("op_2", index=1))
    await bench.start()
    await bench.answer(text("the client's"))
    await bench.complete(text("the executor's"))
    await bench.close("op_2")
    await bench.answer(text("after the closure"), "op_2")
    assert not await bench.late()
    for id in ("op_1", "op_2", "op_unknown"):
        with pytest.raises(Failure) as caught:
            await bench.note(id)
        assert caught.value.reason == reasons.ERROR_REASON_OPERATION_REFUSED


async def test_a_note_is_fenced_and_foreign_threads_have_none(bench: Bench) -> None:
    await closed_then_completed(bench, "op_1")
    await bench.fence(3)
    with pytest.raises(Failure) as caught:
        await bench.note(epoch=2)
    assert caught.value.reason == reasons.ERROR_REASON_FENCED
    assert not await bench.late(FOREIGN)
    with pytest.raises(Failure):
        await bench.note(epoch=3, thread=FOREIGN)
    assert len(await bench.late()) == 1


async def test_a_tombstone_leaves_nothing_to_tell(bench: Bench) -> None:
    await closed_then_completed(bench, "op_1", "op_2")
    await bench.note("op_2")
    await bench.tombstone()
    assert not await bench.late()
    with pytest.raises(Failure) as caught:
        await bench.note(epoch=9)
    assert caught.value.reason == reasons.ERROR_REASON_DELETED


async def test_late_outcomes_are_found_by_an_index(bench: Bench) -> None:
    found = await bench.sql("SELECT indexdef FROM pg_indexes WHERE indexname = 'outcomes_late'")
    assert "(workspace_id, session_id, thread_id) WHERE (role = 3)" in found
