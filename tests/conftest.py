"""Fixtures for every test: see `tests/support`."""

from collections.abc import AsyncGenerator, Generator

import pytest

from foundation import failpoints
from tests.support.objects import SessionObjects, session_objects
from tests.support.postgres import SessionPostgres, session_postgres


@pytest.fixture(scope="session")
def postgres() -> Generator[SessionPostgres]:
    """The session's PostgreSQL server, started when the first test asks for it."""
    with session_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def objects() -> Generator[SessionObjects]:
    """The session's object store, started when the first test asks for it."""
    with session_objects() as server:
        yield server


@pytest.fixture
async def empty_dsn(postgres: SessionPostgres) -> AsyncGenerator[str]:
    """The DSN of a fresh database without any schema."""
    async with postgres.database() as dsn:
        yield dsn


@pytest.fixture(autouse=True)
def no_failpoints_left() -> Generator[None]:
    """A hook that a test installed ends with it."""
    yield
    failpoints.install(None)
