"""The properties of the projection protocol have teeth: every rule that is removed is missed."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from foundation.errors import Failure
from tests.laws.projection import faults
from tests.laws.projection.machine import ProjectionMachine

_EXAMPLES_MAX = 60


class _Large(ProjectionMachine):
    themes = ("large",)


class _Images(ProjectionMachine):
    themes = ("images",)


_MACHINES = {"everything": ProjectionMachine, "large": _Large, "images": _Images}


def _name(value: faults.Fault | str) -> str:
    return value if isinstance(value, str) else value.__name__


@pytest.mark.parametrize(("fault", "theme"), faults.FAULTS.items(), ids=_name)
def test_a_removed_rule_is_noticed(fault: faults.Fault, theme: str) -> None:
    few = settings(
        max_examples=_EXAMPLES_MAX,
        stateful_step_count=30,
        deadline=None,
        database=None,
        derandomize=True,
        print_blob=False,
        report_multiple_bugs=False,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    with fault():
        assert _is_noticed(_MACHINES[theme], few)


def _is_noticed(machine: type[ProjectionMachine], few: settings) -> bool:
    try:
        run_state_machine_as_test(machine, settings=few)
    except (AssertionError, Failure):
        return True
    return False
