"""A journal on a real database, without a kernel."""

from collections.abc import AsyncGenerator

import pytest

from foundation.storage import Database
from services.journal.service import Journal
from services.journal.workers import Workers
from tests.services.journal.bench import RING, Bench, Store, projecting
from tests.support.postgres import SessionPostgres


@pytest.fixture
async def bench(postgres: SessionPostgres) -> AsyncGenerator[Bench]:
    async with postgres.database("journal") as dsn:
        db = await Database.open(dsn, service="journal")
        store, workers = Store(), Workers()
        journal = Journal(db, RING, projecting(store, workers=workers))
        yield Bench(dsn, db, journal, store, workers)
        workers.close()
        await db.close()
