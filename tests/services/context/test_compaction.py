"""What a summary would say is decided without a database, and by the same rules every time."""

import json
from collections.abc import Sequence

import pytest
from counterfoil.context.v1 import context_pb2 as pb

from services.context import summary
from services.context.checkpoints import SUMMARY_BYTES_MAX
from services.context.compaction import Case, aggressive_limit, compaction, plan_id, summary_bytes
from services.context.cutting import Cut
from services.context.losses import NO_LOSSES
from services.context.recipe import frame_of
from services.context.reducer import Item
from tests.services.context.conftest import runtime
from tests.services.context.histories import text

GOOD = "\n".join(f"## {heading}\n- about {heading}" for heading in summary.HEADINGS)


def turns(count: int, said: str) -> list[Item]:
    """So many turns, of an input and an answer each."""
    items = list[Item]()
    for number in range(count):
        for kind in ("input", "answer"):
            seq = len(items) + 1
            block = text(f"{kind} {number}: {said}")
            digest = seq.to_bytes(32)
            items.append(Item(kind, seq, (block,), turn_id=f"turn_{number}", entry_digest=digest))
    return items


def case(
    items: Sequence[Item] = (),
    limit: int = 8_000,
    *,
    overflowed: bool = False,
    given: pb.ModelSummary | None = None,
) -> Case:
    return Case(
        key=("wrkspc_1", "sesn_1", "sthr_1"),
        epoch=1,
        turn=("turn_9", 1),
        frame=frame_of(runtime()),
        losses=NO_LOSSES,
        items=items,
        limit=limit,
        overflowed=overflowed,
        asks_model=False,
        given=given,
    )


@pytest.mark.parametrize(
    ("limit", "overflowed", "expected"),
    [
        (1, False, 1_200),
        (8_000, False, 8_000 // 8 * 3),
        (8_000, True, 8_000 // 16 * 3),
        (10**7, False, SUMMARY_BYTES_MAX - 1024),
    ],
)
def test_a_summary_takes_a_part_of_the_room(limit: int, *, overflowed: bool, expected: int) -> None:
    assert summary_bytes(case(limit=limit, overflowed=overflowed)) == expected


def test_a_plan_is_named_after_what_it_covers() -> None:
    cut = Cut(2, 4, bytes(32), 0, 100)
    name = plan_id(case(), cut)
    assert plan_id(case(limit=5), cut._replace(place=1, tokens_kept=7)) == name
    assert plan_id(case(), cut._replace(through_seq=5)) != name
    assert plan_id(case(), cut._replace(through_digest=b"x" * 32)) != name


@pytest.mark.parametrize(("refused", "expected"), [(1, 1), (900, 450), (10**9, None)])
def test_what_was_refused_is_cut_to_half(refused: int, expected: int | None) -> None:
    limits = frame_of(runtime()).limits
    assert aggressive_limit(limits, refused) == (expected or limits.input_tokens_limit)


def test_nothing_is_covered_where_it_would_hardly_help() -> None:
    assert compaction(case(turns(1, "x"))) is None
    assert compaction(case(turns(2, "x"))) is None


@pytest.mark.parametrize("said", ["x", '"', "\\", "\x01", "ü", "🙂", "\u2028"])
def test_a_full_summary_fits_whatever_its_characters_cost(said: str) -> None:
    words = f"the next step must {said * 40} end. "
    made = compaction(case(turns(400, words * 12), limit=300_000))
    assert made is not None
    block = made.made.block
    assert SUMMARY_BYTES_MAX // 4 < len(block) <= SUMMARY_BYTES_MAX
    assert json.loads(block)["text"].startswith("The beginning of this conversation")


@pytest.mark.parametrize(
    ("said", "is_used"),
    [
        (GOOD + "\n" + "y" * 200, True),
        (GOOD, False),
        (GOOD + "\n" + "y" * (SUMMARY_BYTES_MAX - 1024), False),
        (GOOD + "\n" + '"' * (SUMMARY_BYTES_MAX // 2), False),
        (GOOD + "\n" + "y" * 60_000, False),
    ],
    ids=["good", "too short", "too long", "too long as JSON", "as long as what it replaces"],
)
def test_what_a_model_wrote_is_used_only_if_it_helps(said: str, *, is_used: bool) -> None:
    items = turns(20, "words " * 200)
    first = compaction(case(items))
    assert first is not None
    given = pb.ModelSummary(plan_id=first.id, text=said, operation_id="op_1")
    made = compaction(case(items, given=given))
    assert made is not None
    assert made.made.format == ("model" if is_used else "extractive")
    assert made.made.operation_id == ("op_1" if is_used else "")
    stale = pb.ModelSummary(plan_id="another", text=said, operation_id="op_1")
    assert compaction(case(items, given=stale)) == first
