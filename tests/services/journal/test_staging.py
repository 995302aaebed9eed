"""Bytes are stored before the outcome that refers to them is committed, behind a receipt, and no
outcome is held hostage by the object store."""

import asyncio
import time

import pytest
from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import failpoints, projections
from foundation.errors import Failure
from foundation.projections import Artifact
from services.journal.service import Journal
from tests.services.journal import pictures
from tests.services.journal.bench import (
    AMBIGUOUS,
    COMPLETED,
    RECEIVED,
    RING,
    STARTED,
    THREAD,
    Bench,
    new,
    projecting,
    seen,
    text,
    texts,
)

SEEN = seen("see")
LONG = text("x" * 100_001)
DOWN = Failure(reasons.ERROR_REASON_UNAVAILABLE, "the object store is away")
GONE = Failure(reasons.ERROR_REASON_DELETED, "the session is deleted")


def references(operation: pb.Operation) -> list[str]:
    parts = projections.read(operation.projection.body).parts
    return [part.id for part in parts if isinstance(part, Artifact)]


@pytest.fixture
async def commits() -> list[str]:
    """Names of the journal's commits, as they happen."""
    seen: list[str] = []

    async def hook(name: str) -> None:
        if name.endswith(".after"):
            seen.append(name.removesuffix(".after"))

    failpoints.install(hook)
    return seen


@pytest.fixture(autouse=True)
def no_hook_is_left() -> object:
    yield
    failpoints.install(None)


async def started(bench: Bench, *ids: str) -> None:
    await bench.prepare(*[new(id, index=index) for index, id in enumerate(ids)])
    for id in ids:
        await bench.start(id)


async def test_plain_text_is_one_commit_and_bytes_have_a_receipt_first(
    bench: Bench, commits: list[str]
) -> None:
    await started(bench, "op_1", "op_2", "op_3")
    commits.clear()
    await bench.complete(text("plain"), "op_1")
    assert commits == ["journal.complete"]
    assert bench.store.calls == 0
    commits.clear()
    completed = await bench.complete(SEEN, "op_2")
    assert commits == ["journal.receive", "journal.complete"]
    (id,) = references(completed)
    request = bench.store.staged[id]
    assert request.body == pictures.png()
    assert (request.session_id, request.operation_id) == (THREAD.session_id, "op_2")
    long = await bench.complete(LONG, "op_3")
    assert bench.store.staged[references(long)[0]].body == b"x" * 100_001
    assert list(await bench.get("op_2", "op_3")) == [completed, long]


async def test_bytes_are_there_before_the_outcome_is(bench: Bench) -> None:
    await started(bench, "op_1")
    entered, go_on = asyncio.Event(), asyncio.Event()
    stage = bench.store.StageArtifact

    async def slow(request: object, *, timeout: float) -> object:  # noqa: ASYNC109
        entered.set()
        await go_on.wait()
        return await stage(request, timeout=timeout)  # type: ignore[arg-type]

    bench.store.StageArtifact = slow  # type: ignore[method-assign, assignment]
    completing = asyncio.create_task(bench.complete(SEEN))
    await entered.wait()
    (waiting,) = await bench.get()
    assert waiting.state == RECEIVED
    go_on.set()
    assert (await completing).state == COMPLETED


@pytest.mark.parametrize("outcome", [SEEN, LONG])
async def test_a_death_behind_the_receipt_projects_again_and_runs_nothing(
    bench: Bench, outcome: pb.Outcome
) -> None:
    await started(bench, "op_1")
    bench.store.failing = [asyncio.CancelledError()]
    with pytest.raises(asyncio.CancelledError):
        await bench.complete(outcome)
    assert [o.state for o in await bench.get()] == [RECEIVED]
    bench.store.failing = []
    await bench.fence(2)
    (closed,) = await bench.close(epoch=2)
    assert closed.state == COMPLETED
    assert list(bench.store.staged) == references(closed)
    # The dead executor's repeat, should it live after all, finds the same.
    assert await bench.complete(outcome) == closed


async def test_a_repeat_of_a_completed_call_stores_nothing_again(bench: Bench) -> None:
    await started(bench, "op_1")
    completed = await bench.complete(SEEN)
    assert await bench.complete(SEEN) == completed
    assert bench.store.calls == 1


async def test_a_late_image_is_kept_as_a_late_outcome_and_told_in_words(bench: Bench) -> None:
    await started(bench, "op_1")
    await bench.close()
    late = await bench.complete(SEEN)
    assert late.state == AMBIGUOUS
    assert late.has_late_outcome
    assert bench.store.calls == 0
    (told,) = await bench.late()
    assert projections.read(told.projection.body).texts == ("see", "[stored copy unavailable]")


async def test_answers_of_clients_go_the_same_way(bench: Bench, commits: list[str]) -> None:
    await bench.prepare(new("op_1"), new("op_2", index=1))
    commits.clear()
    first, second = await bench.answer(SEEN, "op_1", "op_2")
    assert commits == ["journal.complete_client_calls"]
    assert references(first) == references(second) == list(bench.store.staged)
    assert list(await bench.answer(SEEN, "op_1", "op_2")) == [first, second]


@pytest.mark.parametrize("failure", [DOWN, GONE])
@pytest.mark.parametrize("how", ["complete", "answer", "close"])
async def test_an_outcome_does_not_wait_for_ever(bench: Bench, failure: Failure, how: str) -> None:
    bench.service = Journal(bench.db, RING, projecting(bench.store, patience_s=0.4))
    await bench.prepare(new("op_1"))
    bench.store.failing = [failure]
    began = time.monotonic()
    if how == "answer":
        (done,) = await bench.answer(SEEN)
    else:
        await bench.start()
        if how == "close":
            await bench.receive(SEEN)
            (done,) = await bench.close()
        else:
            done = await bench.complete(SEEN)
    assert done.state == COMPLETED
    assert texts(done) == ["see", "[stored copy unavailable]"]
    assert time.monotonic() - began < 5
    assert bench.store.calls == (1 if failure is GONE else bench.store.calls)
    assert bench.store.calls > 1 or failure is GONE


async def test_a_store_that_comes_back_in_time_gets_the_bytes(bench: Bench) -> None:
    await started(bench, "op_1")
    bench.store.failing = [DOWN, DOWN, None]
    assert references(await bench.complete(SEEN)) == list(bench.store.staged)
    assert bench.store.calls == 3


async def test_calls_that_end_early_share_one_patience(bench: Bench) -> None:
    """A caller's deadline is shorter than the patience: its repeats come to an end all the same."""
    bench.service = Journal(bench.db, RING, projecting(bench.store, patience_s=0.5))
    await started(bench, "op_1")
    bench.store.failing = [DOWN]
    for _ in range(8):
        try:
            async with asyncio.timeout(0.15):
                done = await bench.complete(SEEN)
        except TimeoutError:
            continue
        break
    else:
        pytest.fail("the outcome was held hostage")
    assert texts(done) == ["see", "[stored copy unavailable]"]


async def test_without_a_start_nothing_is_stored(bench: Bench) -> None:
    await bench.prepare(new("op_1"), new("op_2", index=1))
    await bench.start("op_2")
    for id, nonce in (("op_1", b"n" * 16), ("op_2", b"x" * 16)):
        with pytest.raises(Failure):
            await bench.complete(SEEN, id, nonce)
    assert bench.store.calls == 0
    assert [o.state for o in await bench.get("op_2")] == [STARTED]
