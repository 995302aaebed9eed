"""Every request goes on where the one before ended, or a record says why it does not; both are
counted right, in one process and over restarts."""

from collections.abc import Callable
from typing import Any

import pytest

from foundation import measures
from services.context import breaks
from services.context.breaks import CAUSES
from services.context.cache import WarmCache
from tests.services.context.conftest import Bench, runtime
from tests.services.context.histories import WITHHELD, projection, text
from tests.services.context.test_making_it_fit import round_of, small, turn_of

Counted = Callable[[], dict[str, int]]


@pytest.fixture
def counted() -> Counted:
    """What was counted since the last question, by cause."""
    cells = {cause: measures.PREFIX_BREAKS.cell(cause) for cause in CAUSES.values()}
    before = {cause: cell.value for cause, cell in cells.items()}

    def ask() -> dict[str, int]:
        found = {c: cell.value - before[c] for c, cell in cells.items() if cell.value != before[c]}
        before.update({cause: cell.value for cause, cell in cells.items()})
        return found

    return ask


async def test_a_conversation_breaks_nothing_however_often_it_is_restarted(
    bench: Bench, counted: Counted
) -> None:
    for number in range(4):
        await bench.ask(text(f"question {number}"))
        await bench.prepare(round=number, stream=number % 2 == 0)
        if number % 2:
            bench.service = bench.another()
        await round_of(bench, f"r{number}", projection("result"))
        await bench.prepare(round=number, number=2)
        await bench.answer(text("done"))
    assert counted() == {}


async def test_only_a_process_that_begins_looks_at_the_request_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    monkeypatch.setattr(breaks, "goes_on", lambda body, previous: looked.append("") or True)
    await bench.ask(text("one"))
    for number in range(3):
        await bench.prepare(round=number)
        await bench.answer(text("a"))
        await bench.ask(text("b"))
    assert looked == []
    await bench.another(WarmCache(0)).PrepareRequest(bench.request(round=9), None)
    assert len(looked) == 1


@pytest.mark.parametrize(
    ("pinned", "cause"),
    [
        ({"system": "another"}, "system"),
        ({"tools": []}, "tools"),
        ({"model": "offline-2"}, "parameters"),
    ],
)
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_what_a_session_changed_is_counted_once(
    bench: Bench, counted: Counted, pinned: dict[str, Any], cause: str, is_restarted: bool
) -> None:
    await bench.ask(text("one"))
    await bench.prepare()
    await bench.answer(text("a"))
    await bench.ask(text("two"))
    if is_restarted:
        bench.service = bench.another()
    for number in range(3):
        await bench.prepare(round=1, number=number + 1, pinned=runtime(**pinned))
    assert counted() == {cause: 1}


async def test_another_profile_is_counted_as_that(bench: Bench, counted: Counted) -> None:
    await bench.ask(text("one"))
    await bench.prepare()
    other = runtime()
    other.profile.version += 1
    other.profile.automatic_prompt_caching = not other.profile.automatic_prompt_caching
    await bench.answer(text("a"))
    await bench.ask(text("two"))
    await bench.prepare(round=1, pinned=other)
    assert counted() == {"profile": 1}


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("cause", ["checkpoint", "transition"])
async def test_each_record_is_counted_once(
    bench: Bench, counted: Counted, is_restarted: bool, cause: str
) -> None:
    pinned, seen = small(archive=cause == "transition"), 0
    before = (0, "")
    for number in range(9):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 5_000)
        await bench.ask(text("next?"))
        if is_restarted:
            bench.service = bench.another()
        made = (await bench.prepare(round=number, pinned=pinned)).snapshot
        after = (made.transition_head.seq, made.checkpoint_id)
        assert counted() == ({} if after == before else {cause: 1})
        seen += after != before
        before = after
        await bench.answer(text("yes"))
    assert seen > 1


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_entries_that_were_taken_out_are_counted(
    bench: Bench, counted: Counted, is_restarted: bool
) -> None:
    await bench.ask(text("kept"))
    await bench.answer(text("kept too"))
    await bench.ask(text("to be taken out"))
    await bench.prepare()
    await bench.append(WITHHELD, skipped_entry_ids=["tent_3"])
    await bench.ask(text("in its place"))
    if is_restarted:
        bench.service = bench.another()
    await bench.prepare(round=1)
    assert counted() == {"withheld": 1}


async def test_a_request_for_a_summary_breaks_nothing(bench: Bench, counted: Counted) -> None:
    bench.service = bench.another(summary_mode="model")
    for number in range(6):
        await turn_of(bench, f"t{number}", "x" * 3_000)
    await bench.ask(text("next?"))
    await bench.prepare(pinned=small())
    await bench.answer(text("yes"))
    await turn_of(bench, "t7", "x" * 3_000)
    await bench.ask(text("next?"))
    response = await bench.service.PrepareRequest(bench.request(round=1, pinned=small()), None)
    assert response.HasField("summary_needed")
    assert counted() == {}
    bench.service = bench.another()
    await bench.prepare(round=1, number=2, pinned=small())
    assert counted() == {"checkpoint": 1}


async def test_what_nothing_explains_is_a_bug_and_is_said(
    bench: Bench, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metric would tell: a materializer that does not write what it wrote before."""
    await bench.ask(text(" "))
    await bench.prepare()
    await bench.answer(text("a"))
    await bench.ask(text("two"))
    changed = b'{"type":"text","text":"(nothing)"}'
    monkeypatch.setattr("services.context.materializer._EMPTY_INPUT", changed)
    bench.service = bench.another()
    await bench.prepare(round=1)
    assert counted() == {"bug": 1}


async def test_a_broken_row_before_it_holds_nothing_up(bench: Bench, counted: Counted) -> None:
    await bench.ask(text("one"))
    await bench.prepare()
    await bench.db.commit_one("test", "UPDATE context.snapshots SET recipe_sealed = 'x'")
    await bench.answer(text("a"))
    await bench.ask(text("two"))
    bench.service = bench.another()
    assert (await bench.prepare(round=1)).body
    assert counted() == {}
