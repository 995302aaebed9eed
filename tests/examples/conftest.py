"""The example runs against a whole system, embedded, in a process of its own."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.examples.stage import Stage
from tests.support.model import Model
from tests.support.postgres import SessionPostgres
from tests.support.system import system_of
from tests.support.system_fixtures import model as model
from tests.support.system_fixtures import (
    pytest_runtest_makereport as pytest_runtest_makereport,
)
from tests.support.system_fixtures import zygote as zygote
from tests.support.zygote import Zygote


@pytest.fixture
async def stage(
    zygote: Zygote, model: Model, postgres: SessionPostgres, tmp_path: Path
) -> AsyncGenerator[Stage]:
    """A started system and a folder for the example's state."""
    async with system_of("embedded", zygote, model, postgres) as system:
        await system.start()
        yield Stage(system, tmp_path)
