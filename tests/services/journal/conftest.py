"""A journal on a real database, without a kernel."""

from collections.abc import AsyncGenerator

import pytest

from foundation.storage import Database
from services.journal.projecting import Projecting
from services.journal.redaction import NO_REDACTION
from services.journal.service import Journal
from tests.services.journal.bench import RING, Bench
from tests.support.postgres import SessionPostgres


@pytest.fixture
async def bench(postgres: SessionPostgres) -> AsyncGenerator[Bench]:
    async with postgres.database("journal") as dsn:
        db = await Database.open(dsn, service="journal")
        yield Bench(dsn, db, Journal(db, RING, Projecting(NO_REDACTION)))
        await db.close()
