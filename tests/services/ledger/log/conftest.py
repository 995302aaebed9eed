"""Fixtures of the public log."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack

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


@pytest.fixture
def runner() -> Generator[asyncio.Runner]:
    """One event loop for all examples of a property."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def shared_db(runner: asyncio.Runner, postgres: SessionPostgres) -> Generator[Database]:
    """One database for all examples of a property, in the loop of `runner`."""
    stack = AsyncExitStack()

    async def begin() -> Database:
        dsn = await stack.enter_async_context(postgres.database("ledger"))
        db = await open_log(dsn)
        stack.push_async_callback(db.close)
        return db

    yield runner.run(begin())
    runner.run(stack.aclose())
