"""Fixtures of the files service's tests."""

from collections.abc import AsyncGenerator

import pytest

from foundation.storage import Database
from tests.services.files.bench import Bench
from tests.support.objects import SessionObjects
from tests.support.postgres import SessionPostgres


@pytest.fixture
async def bench(postgres: SessionPostgres, objects: SessionObjects) -> AsyncGenerator[Bench]:
    async with postgres.database("files") as dsn:
        db = await Database.open(dsn, service="files")
        yield Bench.of(dsn, db, objects.store())
        await db.close()
