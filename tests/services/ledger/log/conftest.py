"""Fixtures of the public log."""

from collections.abc import AsyncGenerator

import pytest

from foundation.storage import Database
from tests.services.ledger.log.support import open_log
from tests.support.postgres import SessionPostgres


@pytest.fixture
async def dsn(postgres: SessionPostgres) -> AsyncGenerator[str]:
    async with postgres.database("ledger") as dsn:
        yield dsn


@pytest.fixture
async def db(dsn: str) -> AsyncGenerator[Database]:
    db = await open_log(dsn)
    yield db
    await db.close()
