"""The projection protocol's properties, over the real core of the context authority in memory."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.laws.projection.conversation import IMAGE_BUDGETS
from tests.laws.projection.machine import ProjectionMachine

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


class _EveryProfile(ProjectionMachine):
    image_budgets = IMAGE_BUDGETS


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_what_the_model_sees_over_many_histories() -> None:
    many = settings(_COMMON, max_examples=300, stateful_step_count=40)
    run_state_machine_as_test(_EveryProfile, settings=many)
