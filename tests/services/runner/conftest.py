"""A turn's surroundings on a real database."""

from collections.abc import AsyncGenerator

import pytest

from tests.services.runner.owner import Surroundings, surroundings
from tests.support.postgres import SessionPostgres


@pytest.fixture
async def owner(postgres: SessionPostgres) -> AsyncGenerator[Surroundings]:
    async with surroundings(postgres) as found:
        yield found
