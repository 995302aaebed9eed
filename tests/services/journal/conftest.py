"""A journal on a real database, without a kernel."""

from collections.abc import AsyncGenerator

import pytest

from foundation.storage import Database
from services.journal.service import Journal
from tests.services.journal.bench import RING, Bench, Store, projecting
from tests.support.postgres import SessionPostgres


@pytest.fixture
async def bench(postgres: SessionPostgres) -> AsyncGenerator[Bench]:
    async with postgres.database("journal") as dsn:
        db = await Database.open(dsn, service="journal")
        store = Store()
        yield Bench(dsn, db, Journal(db, RING, projecting(store)), store)
        await db.close()
