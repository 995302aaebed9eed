"""Raw outcomes above 100,000 bytes are erased when their operation is decided; their digest stays,
and everything goes on as if they were there."""

import pytest
from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import projections
from foundation.errors import Failure
from services.journal import drafts, projection
from services.journal.raws import RAW_BYTES_MAX, is_same, lasting
from services.journal.rows import Outcome, Role, StoredOperation
from services.journal.states import State, Step
from tests.services.journal import pictures
from tests.services.journal.bench import AMBIGUOUS, COMPLETED, RECEIVED, Bench, new, text
from tests.services.journal.test_redacted_outcomes import redact

_TOOL_CALL = pb.OPERATION_KIND_TOOL_CALL
LARGE = text("x" * 99_990)
"""Shown as it is, so without a receipt; serialized it is larger than what is kept."""
OTHER = text("y" * 99_990)
LONG = text("z" * 200_000)
PICTURE = pb.Outcome(
    content=pictures.outcome(pictures.image(pictures.png(size=150_000)), pictures.text("seen"))
)
SMALL = pb.Outcome(content=pictures.outcome(pictures.image(pictures.png()), pictures.text("small")))


async def stored(bench: Bench, operation_id: str = "op_1") -> dict[Role, int]:
    """Bytes of raw outcomes, by role."""
    rows = await bench.sql(
        "SELECT array_agg(role || ' ' || length(raw)) FROM journal.outcomes"
        f" WHERE raw IS NOT NULL AND operation_id = '{operation_id}'"
    )
    return {Role(int(one.split()[0])): int(one.split()[1]) for one in rows or []}


async def opened(bench: Bench, *operation_ids: str) -> None:
    await bench.prepare(*[new(id, index=index) for index, id in enumerate(operation_ids)])
    for id in operation_ids:
        await bench.start(id)


def test_a_digest_is_told_from_every_outcome() -> None:
    small, large = b"a" * RAW_BYTES_MAX, b"a" * (RAW_BYTES_MAX + 1)
    assert (lasting(small), len(lasting(large))) == (small, 33)
    for raw in (b"", small, large):
        assert is_same(lasting(raw), raw)
        assert not is_same(lasting(raw), raw + b"a")
        assert not is_same(None, raw)
        assert raw == large or is_same(raw, raw)


UNSHOWN = ("projection_failed", "projection_timeout", "projection_too_large")


@pytest.mark.parametrize("code", [*UNSHOWN, "outcome_unknown", ""])
def test_an_outcome_that_could_not_be_shown_is_kept_whole(code: str) -> None:
    """However it is decided: at once, behind its receipt, by a client, or by a closure."""
    raw = b"a" * (RAW_BYTES_MAX + 1)
    body = projection.failure(code) if code else projection.text("it was shown", is_error=False)
    projected, receipt = projection.digested(body), {("op_1", Role.RECEIPT): raw}
    outcome = Outcome(raw, projected)
    named = ("turn_1", 0, 1, 1, 0, 0, "tool", "1", None, None, None, "", None, None, None, None)
    received = StoredOperation("op_1", _TOOL_CALL, State.RECEIVED, *named, has_late_outcome=False)
    at_once = drafts.conclude_started(Step.COMPLETE, "op_1", outcome)
    by_client, closed = drafts.Draft(), drafts.Draft()
    drafts.answer(by_client, "op_1", None, outcome, {})
    drafts.close(closed, "op_1", received, _TOOL_CALL, {"op_1": projected}, receipt)
    behind_receipt = drafts.conclude_received("op_1", outcome)
    whole = code in UNSHOWN
    assert [one.kept[0].raw == raw for one in (at_once, by_client)] == [whole] * 2
    assert [not one.shortened for one in (behind_receipt, closed)] == [whole] * 2


@pytest.mark.parametrize(
    ("outcome", "is_kept"), [(LARGE, False), (LONG, False), (PICTURE, False), (SMALL, True)]
)
async def test_of_a_large_outcome_the_digest_is_kept(
    bench: Bench, outcome: pb.Outcome, is_kept: bool
) -> None:
    await opened(bench, "op_1")
    completed = await bench.complete(outcome)
    assert completed.state == COMPLETED
    (length,) = (await stored(bench)).values()
    assert (length > 100) is is_kept
    assert length < RAW_BYTES_MAX
    # A repeat finds the same, and somebody who says something else is refused.
    assert await bench.complete(outcome) == completed
    assert await bench.receive(outcome) == completed
    for say in (bench.complete, bench.receive):
        with pytest.raises(Failure) as refused:
            await say(OTHER)
        assert refused.value.reason == reasons.ERROR_REASON_DIGEST_MISMATCH


@pytest.mark.parametrize("outcome", [LONG, PICTURE])
async def test_a_receipt_is_kept_until_it_is_projected(bench: Bench, outcome: pb.Outcome) -> None:
    await opened(bench, "op_1", "op_2")
    for id in ("op_1", "op_2"):
        assert (await bench.receive(outcome, id)).state == RECEIVED
        assert (await stored(bench, id))[Role.RECEIPT] > RAW_BYTES_MAX
    completed = await bench.complete(outcome, "op_1")
    (closed,) = await bench.close("op_2")
    assert completed.projection == closed.projection
    for id in ("op_1", "op_2"):
        assert 0 < (await stored(bench, id))[Role.RECEIPT] < 100
        assert (await bench.complete(outcome, id)).state == COMPLETED


async def test_a_large_answer_decides_and_a_large_receipt_stays_behind(bench: Bench) -> None:
    await opened(bench, "op_1")
    await bench.receive(LONG)
    (answered,) = await bench.answer(LARGE)
    assert (await bench.answer(LARGE)) == [answered]
    lengths = await stored(bench)
    assert set(lengths) == {Role.RECEIPT, Role.DECIDED, Role.LATE}
    assert max(lengths.values()) < 100
    await bench.answer(OTHER)
    assert (await bench.complete(LONG)).projection == answered.projection
    assert await stored(bench) == lengths


async def test_a_late_outcome_is_kept_until_it_is_told(bench: Bench) -> None:
    await opened(bench, "op_1")
    (closed,) = await bench.close()
    assert closed.state == AMBIGUOUS
    for _ in range(2):
        assert (await bench.complete(LARGE)).has_late_outcome
    (told,) = await bench.late()
    assert projections.read(told.projection.body).texts == ("x" * 99_990,)
    assert (await stored(bench))[Role.LATE] > RAW_BYTES_MAX
    await bench.note("op_1")
    assert (await stored(bench))[Role.LATE] < 100
    assert (await bench.complete(LARGE)).has_late_outcome
    assert not await bench.late()


async def test_a_redaction_erases_the_digest_too(bench: Bench) -> None:
    await opened(bench, "op_1")
    await bench.complete(LONG)
    await redact(bench, "op_1")
    assert await stored(bench) == {}
