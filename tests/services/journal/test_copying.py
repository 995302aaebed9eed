"""Copied operations: what the model sees of them is the same, and nothing else comes along."""

import pytest
from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import ThreadRef

from foundation import ids
from foundation.errors import Failure
from tests.services.journal.bench import (
    ABANDONED,
    AMBIGUOUS,
    COMPLETED,
    CONTEXT,
    FOREIGN,
    THREAD,
    Bench,
    claim,
    new,
    text,
)

FORK = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_2", thread_id="sthr_2")


async def copy(
    bench: Bench, *operation_ids: str, epoch: int = 1, source: ThreadRef = THREAD
) -> pb.CopyOperationsResponse:
    request = pb.CopyOperationsRequest(
        fence=claim(epoch, FORK), source=source, operation_ids=operation_ids
    )
    return await bench.service.CopyOperations(request, CONTEXT)


async def ended(bench: Bench) -> list[str]:
    """Four calls that ended in every way."""
    calls = [new(f"op_{number}", index=number) for number in range(4)]
    await bench.prepare(*calls)
    await bench.start("op_0")
    await bench.complete(text("it ran"), "op_0")
    await bench.start("op_1")
    await bench.close("op_1")
    await bench.close("op_2")
    await bench.answer(text("the client said so", is_error=True), "op_3")
    return [call.id for call in calls]


def reason(failure: pytest.ExceptionInfo[Failure]) -> str:
    return reasons.ErrorReason.Name(failure.value.reason).removeprefix("ERROR_REASON_")


async def test_a_copy_shows_the_model_the_same_bytes(bench: Bench) -> None:
    wanted = await ended(bench)
    await copy(bench, *wanted)
    source = await bench.get(*wanted)
    target = await bench.get(*wanted, thread=FORK)
    assert [one.state for one in target] == [COMPLETED, AMBIGUOUS, ABANDONED, COMPLETED]
    for before, after in zip(source, target, strict=True):
        assert after.projection == before.projection
        assert after.id == before.id
        assert after.turn_id == ids.copied("turn", FORK.thread_id, before.turn_id)
        for field in ("kind", "state", "round", "attempt", "block_index", "owner", "tool_name"):
            assert getattr(after, field) == getattr(before, field), field
        assert not after.HasField("started_at")
    assert [one.id for one in await bench.inspect(FORK)] == wanted


async def test_raw_outcomes_inputs_and_nonces_stay_behind(bench: Bench) -> None:
    await copy(bench, *await ended(bench))
    where = "WHERE session_id = 'sesn_2'"
    assert await bench.sql(f"SELECT count(raw) FROM journal.outcomes {where}") == 0
    assert await bench.sql(f"SELECT count(*) FROM journal.outcomes {where}") == 4
    kept = await bench.sql(
        f"SELECT count(input) + count(nonce_digest) FROM journal.operations {where}"
    )
    assert kept == 0


async def test_a_repeat_copies_nothing_twice(bench: Bench) -> None:
    wanted = await ended(bench)
    await copy(bench, *wanted[:2])
    before = await bench.inspect(FORK)
    await copy(bench, *wanted, *wanted, epoch=2)
    after = await bench.inspect(FORK)
    assert list(after)[: len(before)] == list(before)
    assert len(after) == 4


async def test_a_late_outcome_belongs_to_the_source_alone(bench: Bench) -> None:
    await ended(bench)
    await copy(bench, "op_1")
    await bench.complete(text("after all"), "op_1")
    assert len(await bench.late()) == 1
    assert not await bench.late(FORK)
    with pytest.raises(Failure) as caught:
        await bench.complete(text("after all"), "op_1", thread=FORK)
    assert reason(caught) == "OPERATION_REFUSED"


async def test_a_copy_lives_on_its_own(bench: Bench) -> None:
    wanted = await ended(bench)
    shown = [one.projection for one in await bench.get(*wanted)]
    await copy(bench, *wanted)
    await bench.tombstone()
    copies = await bench.get(*wanted, thread=FORK)
    assert [one.projection for one in copies] == shown


async def test_only_decided_tool_calls_of_the_source_are_copied(bench: Bench) -> None:
    await ended(bench)
    await bench.prepare(new("op_open", index=9))
    await bench.start_model_call()
    for id_ in ("op_open", "op_m", "op_unknown"):
        with pytest.raises(Failure) as caught:
            await copy(bench, "op_0", id_)
        assert reason(caught) == "CORRUPT"
        assert id_ in caught.value.text
    assert not await bench.inspect(FORK)


async def test_older_owners_foreign_sources_and_deleted_threads_are_refused(bench: Bench) -> None:
    await ended(bench)
    await copy(bench, "op_0", epoch=5)
    with pytest.raises(Failure) as old:
        await copy(bench, "op_1", epoch=4)
    assert reason(old) == "FENCED"
    with pytest.raises(Failure) as foreign:
        await copy(bench, "op_1", source=FOREIGN, epoch=5)
    assert reason(foreign) == "NOT_FOUND"
    await bench.service.Tombstone(pb.TombstoneRequest(thread=FORK), CONTEXT)
    with pytest.raises(Failure) as dead:
        await copy(bench, "op_1", epoch=6)
    assert reason(dead) == "DELETED"
