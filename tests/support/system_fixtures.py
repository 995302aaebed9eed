"""Fixtures of tests of the whole system; their conftest imports everything from here."""

from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from tests.offline_model.support import running
from tests.support.model import Model
from tests.support.objects import SessionObjects
from tests.support.postgres import SessionPostgres
from tests.support.system import DIAGNOSES, LIVE, System, system_of
from tests.support.zygote import Zygote


@pytest.fixture(scope="session")
def zygote() -> Generator[Zygote]:
    """The process that forks systems."""
    started = Zygote.start()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def model() -> Generator[Model]:
    """The provider of every system."""
    with running() as server:
        yield Model(server.url)


@pytest.fixture(params=["embedded", pytest.param("split", marks=pytest.mark.full)])
async def system(
    request: pytest.FixtureRequest, zygote: Zygote, model: Model, postgres: SessionPostgres
) -> AsyncGenerator[System]:
    """A system in each mode, not started yet."""
    split: bool = request.param == "split"
    objects: SessionObjects | None = request.getfixturevalue("objects") if split else None
    environment = {} if objects is None else await objects.environment()
    async with system_of(request.param, zygote, model, postgres, **environment) as made:
        yield made


@pytest.fixture
async def running_system(system: System) -> System:
    """The same, started."""
    await system.start()
    return system


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any]:
    """A failed test shows what its system said."""
    outcome = yield
    report = outcome.get_result()
    if report.when in ("setup", "call") and report.failed:
        for said in [*DIAGNOSES, *(made.diagnosis() for made in LIVE)]:
            report.sections.append(("system", said))
    DIAGNOSES.clear()
