"""A call in one transaction: its parts see each other, and are durable together or not at all."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from foundation.idempotency import Replays
from foundation.storage import Database, SealRing
from tests.support.postgres import SessionPostgres

PUT = "INSERT INTO notes (id) VALUES ($1)"
COUNT = "SELECT count(*) FROM notes"


@pytest.fixture
async def db(postgres: SessionPostgres) -> AsyncGenerator[Database]:
    async with postgres.database() as dsn:
        db = await Database.open(dsn, service="test", pool_size=2)
        await db.commit_one("test.table", "CREATE TABLE notes (id int PRIMARY KEY)")
        yield db
        await db.close()


async def test_parts_see_each_other_and_others_see_nothing_before_the_end(db: Database) -> None:
    async with db.joint("test.joint"):
        async with db.commit("test.one") as connection:
            await connection.execute(PUT, 1)
        await db.commit_one("test.two", PUT, 2)
        assert await db.fetchval(COUNT) == 2
        async with db.read() as connection:
            assert await connection.fetchval(COUNT) == 2
        assert await _outside(db) == 0
    assert await db.fetchval(COUNT) == 2


async def _outside(db: Database) -> int:
    from contextvars import Context

    return await asyncio.create_task(db.fetchval(COUNT), context=Context())


async def test_an_exception_undoes_every_part(db: Database) -> None:

    async def fail() -> None:
        async with db.joint("test.joint"):
            await db.commit_one("test.one", PUT, 1)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await fail()
    assert await db.fetchval(COUNT) == 0


async def test_a_part_that_fails_undoes_itself_only(db: Database) -> None:

    async def fail() -> None:
        async with db.commit("test.two") as connection:
            await connection.execute(PUT, 2)
            raise ValueError("no")

    async with db.joint("test.joint"):
        await db.commit_one("test.one", PUT, 1)
        with pytest.raises(ValueError, match="no"):
            await fail()
    assert await db.fetchval(COUNT) == 1


async def test_tasks_of_a_call_take_turns(db: Database) -> None:
    async with db.joint("test.joint"):
        await asyncio.gather(*(db.commit_one("test.put", PUT, id_) for id_ in range(8)))
        assert await asyncio.gather(*(db.fetchval(COUNT) for _ in range(8))) == [8] * 8


async def test_what_follows_a_commit_waits_for_it(db: Database) -> None:
    told: list[str] = []
    db.after_commit(lambda: told.append("at once"))
    async with db.joint("test.joint"):
        db.after_commit(lambda: told.append("joined"))
        assert told == ["at once"]
    assert told == ["at once", "joined"]

    async def fail() -> None:
        async with db.joint("test.joint"):
            db.after_commit(lambda: told.append("never"))
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await fail()
    assert told == ["at once", "joined"]


@pytest.mark.parametrize("service", ["registry", "ledger"])
async def test_expired_answers_are_swept(
    postgres: SessionPostgres, tmp_path: Path, service: str
) -> None:
    ring = SealRing.generate(tmp_path / "keys.json")
    async with postgres.database(service) as dsn:
        db = await Database.open(dsn, service=service, pool_size=2)
        try:
            replays = Replays(db, ring, service)
            async with db.read() as connection:
                for sql in replays.statements:
                    await connection.prepare(sql)
            put = (
                f"INSERT INTO {service}.replays (workspace_id, method, key_digest, created_at)"
                " VALUES ('w', 'm', $1::bytea, now() - $2::int * interval '1 hour')"
            )
            for number, hours in enumerate((0, 23, 25, 48)):
                await db.commit_one("test.put", put, bytes([number]), hours)
            assert await replays.sweep_once() == 2
            assert await db.fetchval(f"SELECT count(*) FROM {service}.replays") == 2
        finally:
            await db.close()
