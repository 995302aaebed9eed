"""One operation with one outcome is written by a statement of its own, to the same effect as by
the one for many."""

from collections.abc import Sequence

import pytest
from counterfoil.journal.v1 import journal_pb2 as pb

from foundation.errors import Failure
from services.journal.drafts import Draft
from services.journal.projection import digested
from services.journal.rows import Kept, Outcome, Role, Source
from services.journal.states import State
from tests.services.journal.bench import COMPLETED, STARTED, Bench, new, text

GIVEN = Outcome(b"raw", digested(b"{}"))


def decided(*ids: str) -> Draft:
    draft = Draft()
    for id in ids:
        draft.move(id, State.STARTED, State.COMPLETED)
        draft.kept.append(Kept(id, Role.DECIDED, Source.EXECUTOR, *GIVEN))
    return draft


def test_one_is_a_move_of_an_operation_with_the_outcome_that_it_keeps() -> None:
    assert decided("op_1").one == (decided("op_1").moves[0], decided("op_1").kept[0])
    two, born, held, bare, other = (
        decided("op_1", "op_2"),
        decided("op_1"),
        Draft(),
        Draft(),
        Draft(),
    )
    born.move("op_2", State.ABSENT, State.ABANDONED)
    held.note("op_1")
    bare.move("op_1", State.STARTED, State.AMBIGUOUS)
    other.move("op_1", State.STARTED, State.COMPLETED)
    other.kept.append(Kept("op_2", Role.DECIDED, Source.EXECUTOR, *GIVEN))
    assert [draft.one for draft in (two, born, held, bare, other)] == [None] * 5


async def test_both_statements_leave_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.prepare(new("op_1"), new("op_2"), new("op_3"), new("op_4"))
    await bench.start("op_1")
    await bench.start("op_2")
    first = [await bench.complete(text("x"), "op_1"), *await bench.answer(text("y"), "op_3")]
    one = [await stored(bench, "op_1"), await stored(bench, "op_3")]
    monkeypatch.setattr(Draft, "one", None)
    second = [await bench.complete(text("x"), "op_2"), *await bench.answer(text("y"), "op_4")]
    many = [await stored(bench, "op_2"), await stored(bench, "op_4")]
    assert one == many
    assert [nameless(o) for o in first] == [nameless(o) for o in second]
    assert {o.state for o in first} == {COMPLETED}


@pytest.mark.parametrize("is_one", [True, False])
async def test_both_statements_refuse_alike(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_one: bool
) -> None:
    if not is_one:
        monkeypatch.setattr(Draft, "one", None)
    await bench.prepare(new("op_1"), epoch=3)
    await bench.start("op_1", epoch=3)
    for attempt in (
        bench.complete(text("x"), nonce=b"another nonce..."),
        bench.answer(text("x"), epoch=2),
    ):
        with pytest.raises(Failure):
            await attempt
    assert [o.state for o in await bench.get("op_1")] == [STARTED]
    assert await stored(bench, "op_1") == []
    await bench.answer(text("x"), epoch=5)
    with pytest.raises(Failure):
        await bench.fence(4)


def nameless(operation: pb.Operation) -> pb.Operation:
    """What does not depend on which of two operations it is."""
    copy = pb.Operation()
    copy.CopyFrom(operation)
    for name in ("id", "started_at", "deadline_at"):
        copy.ClearField(name)
    return copy


async def stored(bench: Bench, id: str) -> Sequence[tuple[object, ...]]:
    """The outcomes of an operation as they are stored, but for their sealed bytes."""
    rows = await bench.db.fetch(
        "SELECT role, source, raw IS NULL AS no_raw, projection IS NULL AS no_projection"
        " FROM journal.outcomes WHERE operation_id = $1 ORDER BY role",
        id,
    )
    return [tuple(row) for row in rows]
