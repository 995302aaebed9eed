"""A fresh ledger for every test."""

from collections.abc import AsyncGenerator

import pytest

from tests.services.ledger.turns.driver import Ledger, open_ledger
from tests.support.postgres import SessionPostgres


@pytest.fixture
async def dsn(postgres: SessionPostgres) -> AsyncGenerator[str]:
    async with postgres.database("ledger") as dsn:
        yield dsn


@pytest.fixture
async def ledger(dsn: str) -> AsyncGenerator[Ledger]:
    async with open_ledger(dsn) as ledger:
        yield ledger
