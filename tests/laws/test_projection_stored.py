"""The projection protocol's properties over PostgreSQL, with processes that die at commits."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.laws.projection.stored import StoredMachine, open_stage
from tests.support.postgres import SessionPostgres

_COMMON = settings(
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    report_multiple_bugs=False,
    phases=[Phase.generate],
)


def _play(postgres: SessionPostgres, how: settings) -> None:
    with open_stage(postgres) as stage:
        StoredMachine.stage = stage
        run_state_machine_as_test(StoredMachine, settings=how)


def test_what_the_model_sees_is_what_is_stored(postgres: SessionPostgres) -> None:
    few = settings(_COMMON, max_examples=6, stateful_step_count=20, derandomize=True)
    _play(postgres, few)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("quarter", range(4))
def test_what_the_model_sees_is_what_is_stored_over_many_histories(
    quarter: int, postgres: SessionPostgres
) -> None:
    """Three hundred histories in all, in parts that run at the same time."""
    _play(postgres, settings(_COMMON, max_examples=75, stateful_step_count=40))
