"""Two installations that know nothing of each other: one to export from, an empty one."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.exports.support import Pair
from tests.support.model import Model
from tests.support.objects import session_objects
from tests.support.postgres import SessionPostgres
from tests.support.system import Mode, system_of
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
    request: pytest.FixtureRequest, zygote: Zygote, model: Model, postgres: SessionPostgres
) -> AsyncGenerator[Pair]:
    """Both, with a model that sees little at once; of another mode when a test is given one."""
    mode: Mode = getattr(request, "param", "embedded")
    told = {"COUNTERFOIL_MODEL_WINDOW_TOKENS": str(WINDOW)}
    async with (
        _stores(mode) as (here, there),
        system_of(mode, zygote, model, postgres, **told, **here) as source,
        system_of(mode, zygote, model, postgres, **told, **there) as target,
    ):
        await source.start()
        await target.start()
        await model.window(WINDOW)
        yield Pair(source, target)


@asynccontextmanager
async def _stores(mode: Mode) -> AsyncGenerator[tuple[dict[str, str], dict[str, str]]]:
    """Two stores of objects, which an embedded system has itself."""
    if mode == "embedded":
        yield {}, {}
        return
    with session_objects() as here, session_objects() as there:
        yield await here.environment(), await there.environment()
