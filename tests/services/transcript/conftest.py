"""A transcript on a real database, without a kernel."""

from collections.abc import AsyncGenerator

import pytest

from foundation.storage import Database, SealRing
from services.transcript.service import Transcript
from tests.services.transcript.bench import Bench
from tests.support.postgres import SessionPostgres


@pytest.fixture
async def bench(postgres: SessionPostgres) -> AsyncGenerator[Bench]:
    async with postgres.database("transcript") as dsn:
        db = await Database.open(dsn, service="transcript")
        ring = SealRing("a", {"a": bytes(32)})
        yield Bench(dsn, db, Transcript(db, ring))
        await db.close()
