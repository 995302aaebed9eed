"""A journal on a real database, without a kernel."""

from collections.abc import AsyncGenerator

import pytest

from foundation.storage import Database, SealRing
from services.journal.service import Journal
from tests.services.journal.bench import Bench
from tests.support.postgres import SessionPostgres


@pytest.fixture
async def bench(postgres: SessionPostgres) -> AsyncGenerator[Bench]:
    async with postgres.database("journal") as dsn:
        db = await Database.open(dsn, service="journal")
        ring = SealRing("a", {"a": bytes(32)})
        yield Bench(dsn, db, Journal(db, ring))
        await db.close()
