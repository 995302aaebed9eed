"""Two installations that know nothing of each other: one to export from, an empty one."""

from collections.abc import AsyncGenerator

import pytest

from tests.exports.support import Pair
from tests.support.model import Model
from tests.support.postgres import SessionPostgres
from tests.support.system import system_of
from tests.support.system_fixtures import model, pytest_runtest_makereport, zygote
from tests.support.zygote import Zygote

__all__ = ["model", "pytest_runtest_makereport", "zygote"]


@pytest.fixture
async def pair(zygote: Zygote, model: Model, postgres: SessionPostgres) -> AsyncGenerator[Pair]:
    """Both, started."""
    async with (
        system_of("embedded", zygote, model, postgres) as source,
        system_of("embedded", zygote, model, postgres) as target,
    ):
        await source.start()
        await target.start()
        yield Pair(source, target)


WINDOW = 30_000


@pytest.fixture
async def narrow_pair(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> AsyncGenerator[Pair]:
    """Both, with a model that sees little at once."""
    told = {"COUNTERFOIL_MODEL_WINDOW_TOKENS": str(WINDOW)}
    async with (
        system_of("embedded", zygote, model, postgres, **told) as source,
        system_of("embedded", zygote, model, postgres, **told) as target,
    ):
        await source.start()
        await target.start()
        await model.window(WINDOW)
        yield Pair(source, target)
