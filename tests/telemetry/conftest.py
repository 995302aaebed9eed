"""A system in this process whose spans stay in memory."""

from collections.abc import AsyncGenerator

import pytest

from cli.embedded import Embedded
from foundation import telemetry
from tests.support.inside import inside
from tests.support.model import Model
from tests.support.postgres import SessionPostgres
from tests.support.system_fixtures import model, zygote
from tests.telemetry.support import Spans

__all__ = ["model", "zygote"]


@pytest.fixture
async def spans() -> AsyncGenerator[Spans]:
    """Every span that ends, in order."""
    made = Spans()
    telemetry.configure("counterfoil-test", made)
    yield made
    telemetry.shutdown()


@pytest.fixture
async def embedded(
    spans: Spans, postgres: SessionPostgres, model: Model
) -> AsyncGenerator[Embedded]:
    """The system."""

    async with inside(postgres, model.url) as (made, _):
        yield made
