"""The projection protocol's properties, over the real core of the context authority in memory."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.laws.projection.authorities import Memory
from tests.laws.projection.conversation import IMAGE_BUDGETS
from tests.laws.projection.machine import ProjectionMachine
from tests.laws.projection.play import Play
from tests.laws.projection.writer import STORED, Writer
from tests.services.context.histories import projection, text, use

PICTURE = b'{"type":"image","source":{"type":"base64","media_type":"image/png","data":"%b"}}' % (
    b"A" * 3_000
)

_COMMON = settings(
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    report_multiple_bugs=False,
)


def test_what_the_model_sees_only_grows_or_changes_by_record() -> None:
    quick = settings(_COMMON, max_examples=40, stateful_step_count=25, derandomize=True)
    run_state_machine_as_test(ProjectionMachine, settings=quick)


class _Pictured(ProjectionMachine):
    themes = ("images",)


@pytest.mark.parametrize("budget", IMAGE_BUDGETS[1:], ids=["no vision", "a tiny budget"])
def test_it_does_so_in_other_profiles(budget: int) -> None:
    class Profiled(_Pictured):
        image_budgets = (budget,)

    few = settings(_COMMON, max_examples=10, stateful_step_count=25, derandomize=True)
    run_state_machine_as_test(Profiled, settings=few)


def test_a_recovery_goes_on_although_another_writer_gets_in_between() -> None:
    """Images, then a summary, then the end: whatever else is recorded meanwhile (P19)."""
    play = Play(Memory(), 60_000, prunes=False)
    writer, records = Writer(play), play.memory.records

    def rival() -> None:
        assert writer.write(writer.decided(writer.targets(covered=False)[0])) == STORED

    try:
        play.say(text(play.marked("call")), is_small=True)
        assert play.prepare()
        play.answer(use("a", "{}"))
        play.results([projection(play.marked("y" * 3_000)).body], [], [0])
        assert play.prepare()
        play.answer(text("called"))
        play.phase = "idle"
        for _ in range(4):
            play.say(text(play.marked("x" * 6_000)), PICTURE, is_small=False)
            assert play.prepare()
            play.answer(text("seen"))
            play.phase = "idle"
        play.say(text("and now?"), PICTURE, is_small=False)
        assert play.prepare()
        recoveries: list[str] = []
        while play.phase == "asked" and len(recoveries) < 4:
            records.before_record = rival if recoveries else None
            refused = play.made[-1].snapshot_id
            if play.prepare(refused):
                made = play.memory.snapshots.recipes[play.made[-1].snapshot_id]
                recoveries.append(made.recovery)
        assert recoveries == ["images", "compaction"]
    finally:
        records.before_record = None
        play.close()


class _EveryProfile(ProjectionMachine):
    image_budgets = IMAGE_BUDGETS


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_what_the_model_sees_over_many_histories() -> None:
    many = settings(_COMMON, max_examples=300, stateful_step_count=40)
    run_state_machine_as_test(_EveryProfile, settings=many)
