"""A redacted outcome is gone for good; its digest stays, and nothing takes it in again."""

import pytest
from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import ThreadRef

from foundation.errors import Failure
from foundation.projections import REDACTED
from foundation.storage import Database
from foundation.storage.testing import assert_sql_prepares
from services.journal import redaction_store
from tests.services.journal.bench import AMBIGUOUS, CONTEXT, FOREIGN, THREAD, Bench, new, seen, text
from tests.services.journal.test_copying import copy

SECRET = "<<hunter2>>"
FORK = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_2", thread_id="sthr_2")


async def redact(
    bench: Bench, operation_id: str = "op_0", thread: ThreadRef = THREAD
) -> pb.RedactOperationResponse:
    request = pb.RedactOperationRequest(
        thread=thread, operation_id=operation_id, reader="ops", reason="a leaked key"
    )
    return await bench.service.RedactOperation(request, CONTEXT)


async def ran(bench: Bench) -> bytes:
    """A call with a receipt and an outcome; the digest of what the model saw."""
    await bench.prepare(new("op_0"))
    await bench.start("op_0")
    await bench.receive(seen(SECRET), "op_0")
    return (await bench.complete(seen(SECRET), "op_0")).projection.digest


async def bodies(bench: Bench) -> list[bytes]:
    """All that is stored of outcomes."""
    db = await Database.open(bench.dsn, service="test")
    try:
        rows = await db.fetch("SELECT raw, projection FROM journal.outcomes")
    finally:
        await db.close()
    return [body for row in rows for body in row.values() if body is not None]


def reason(failure: pytest.ExceptionInfo[Failure]) -> int:
    return failure.value.reason


async def test_every_statement_prepares(bench: Bench) -> None:
    assert await assert_sql_prepares(redaction_store, bench.dsn) == 6


async def test_of_an_input_nothing_stays_and_the_outcome_does(bench: Bench) -> None:
    digest = await ran(bench)
    db = await Database.open(bench.dsn, service="test")
    try:
        for created in (True, False):
            request = pb.RedactOperationRequest(
                thread=THREAD, operation_id="op_0", reader="ops", reason="a key", input=True
            )
            assert (await bench.service.RedactOperation(request, CONTEXT)).created == created
            assert await db.fetchval("SELECT count(*) FROM journal.operations") == 1
            assert await db.fetchval("SELECT count(input) FROM journal.operations") == 0
    finally:
        await db.close()
    (shown,) = await bench.get("op_0")
    assert shown.projection.digest == digest
    assert not shown.is_redacted


async def test_every_body_goes_and_the_digest_stays(bench: Bench) -> None:
    digest = await ran(bench)
    assert await bodies(bench)
    assert (await redact(bench)).created
    assert await bodies(bench) == []
    (shown,) = await bench.get("op_0")
    assert shown.is_redacted
    assert (shown.projection.body, shown.projection.digest) == (REDACTED, digest)
    assert not (await redact(bench)).created


async def test_nothing_that_is_said_later_is_kept(bench: Bench) -> None:
    await ran(bench)
    await redact(bench)
    again = await bench.complete(seen(SECRET), "op_0")  # the executor did not see the answer
    assert again.is_redacted
    await bench.answer(text(SECRET), "op_0")
    await bench.close("op_0")
    assert await bodies(bench) == []


async def test_a_late_outcome_goes_with_the_others(bench: Bench) -> None:
    await bench.prepare(new("op_0"))
    await bench.start("op_0")
    await bench.close("op_0")
    await bench.complete(text(SECRET), "op_0")
    await redact(bench)
    assert await bodies(bench) == []
    (shown,) = await bench.get("op_0")
    assert shown.state == AMBIGUOUS
    await bench.complete(text(SECRET), "op_0")
    assert await bodies(bench) == []


async def test_a_copy_of_a_redacted_outcome_is_redacted(bench: Bench) -> None:
    digest = await ran(bench)
    await redact(bench)
    assert list((await copy(bench, "op_0")).artifact_ids) == []
    (shown,) = await bench.get("op_0", thread=FORK)
    assert (shown.is_redacted, shown.projection.digest) == (True, digest)


async def test_only_outcomes_of_known_tool_calls_are_redacted(bench: Bench) -> None:
    await bench.prepare(new("op_0"))
    await bench.start_model_call("op_m")
    cases = [
        ("op_0", THREAD, reasons.ERROR_REASON_OPERATION_REFUSED),
        ("op_m", THREAD, reasons.ERROR_REASON_OPERATION_REFUSED),
        ("op_none", THREAD, reasons.ERROR_REASON_NOT_FOUND),
        ("op_0", FOREIGN, reasons.ERROR_REASON_NOT_FOUND),
    ]
    for id, thread, expected in cases:
        with pytest.raises(Failure) as failure:
            await redact(bench, id, thread)
        assert reason(failure) == expected, id


async def test_a_body_that_is_missing_without_a_record_is_not_redacted(bench: Bench) -> None:
    await ran(bench)
    db = await Database.open(bench.dsn, service="test")
    try:
        async with db.commit("test") as c:
            await c.execute("UPDATE journal.outcomes SET raw = NULL, projection = NULL")
    finally:
        await db.close()
    (shown,) = await bench.get("op_0")
    assert not shown.is_redacted
    assert not shown.HasField("projection")
