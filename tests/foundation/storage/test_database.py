"""Writing happens only inside a named commit, and a commit is all or nothing."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import asyncpg
import pytest

from foundation import failpoints
from foundation.storage import Connection, Database, Unavailable


@pytest.fixture
async def db(empty_dsn: str) -> AsyncGenerator[Database]:
    database = await Database.open(empty_dsn, service="test", pool_size=3)
    async with database.commit("test.create") as connection:
        await connection.execute("CREATE TABLE items (id int PRIMARY KEY)")
    yield database
    await database.close()


async def add(db: Database, item: int, failpoint: str = "test.add") -> None:
    async with db.commit(failpoint) as connection:
        await connection.execute("INSERT INTO items VALUES ($1)", item)


async def items(db: Database) -> list[int]:
    return [row["id"] for row in await db.fetch("SELECT id FROM items ORDER BY id")]


def pause_at(name: str) -> tuple[asyncio.Event, asyncio.Event]:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hook(hit: str) -> None:
        if hit == name:
            reached.set()
            await go_on.wait()

    failpoints.install(hook)
    return reached, go_on


INSERT = "INSERT INTO items VALUES (1) RETURNING id"


async def test_postgresql_refuses_every_write_outside_commit(db: Database) -> None:
    for call in (db.fetch, db.fetchrow, db.fetchval):
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await call(INSERT)
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        async with db.read() as connection:
            await connection.execute(INSERT)
    async with db.commit("test.add") as kept:
        pass
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await kept.execute(INSERT)
    assert await items(db) == []


async def test_a_commit_hits_before_and_after_in_that_order(db: Database) -> None:
    seen: list[tuple[str, list[int]]] = []

    async def hook(name: str) -> None:
        seen.append((name, await items(db)))

    failpoints.install(hook)
    await add(db, 1)
    await db.commit_one("test.one", "INSERT INTO items VALUES ($1)", 2)
    assert seen == [
        ("test.add.before", []),
        ("test.add.after", [1]),
        ("test.one.before", [1]),
        ("test.one.after", [1, 2]),
    ]


@pytest.mark.parametrize("name", ["test.add.before", "block"])
async def test_an_exception_rolls_back_and_hits_no_after(db: Database, name: str) -> None:
    hits: list[str] = []

    async def hook(hit: str) -> None:
        hits.append(hit)
        if hit == name:
            raise LookupError(hit)

    async def fail() -> None:
        async with db.commit("test.add") as connection:
            await connection.execute("INSERT INTO items VALUES (1)")
            await failpoints.hit("block")

    failpoints.install(hook)
    with pytest.raises(LookupError):
        await fail()
    assert "test.add.after" not in hits
    assert await items(db) == []


async def test_a_swallowed_sql_error_is_not_reported_as_committed(db: Database) -> None:
    async def swallow() -> None:
        async with db.commit("test.add") as connection:
            await connection.execute(INSERT)
            with contextlib.suppress(asyncpg.UniqueViolationError):
                await connection.execute(INSERT)

    with pytest.raises(RuntimeError, match="nothing was committed"):
        await swallow()
    assert await items(db) == []


async def test_an_sql_error_is_raised_as_it_is(db: Database) -> None:
    await add(db, 1)
    with pytest.raises(asyncpg.UniqueViolationError):
        await add(db, 1)
    with pytest.raises(asyncpg.UniqueViolationError):
        await db.commit_one("test.one", INSERT)
    await add(db, 2)
    assert await items(db) == [1, 2]


async def test_a_cancelled_block_rolls_back_and_its_sql_stops(db: Database) -> None:
    async def sleep() -> None:
        async with asyncio.timeout(0.1), db.commit("test.add") as connection:
            await connection.execute(INSERT)
            await connection.execute("SELECT pg_sleep(60)")

    with pytest.raises(TimeoutError):
        await sleep()
    assert await items(db) == []
    running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)' "
    running += "AND state = 'active' AND datname = current_database()"
    assert await db.fetchval(running) == 0


async def test_cancelling_never_leaves_a_commit_half_known(db: Database) -> None:
    for item in range(40):
        task = asyncio.create_task(add(db, item))
        for _ in range(item):
            await asyncio.sleep(0)
        task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        assert outcome is None or isinstance(outcome, asyncio.CancelledError)
        if outcome is None:
            assert item in await items(db)
    # Every connection is back and clean.
    await asyncio.gather(*(add(db, item) for item in range(100, 110)))
    open_transactions = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'"
    open_transactions += " AND datname = current_database()"
    assert await db.fetchval(open_transactions) == 0


async def test_a_cancellation_during_commit_waits_for_its_answer(db: Database) -> None:
    holding, let_go = pause_at("test.hold.before")
    # A deferred constraint makes COMMIT itself wait for the other transaction.
    async with db.commit("test.create") as connection:
        await connection.execute(
            "ALTER TABLE items ADD CONSTRAINT late UNIQUE (id) DEFERRABLE INITIALLY DEFERRED"
        )
        await connection.execute("ALTER TABLE items DROP CONSTRAINT items_pkey")
    holder = asyncio.create_task(add(db, 1, "test.hold"))
    await holding.wait()
    waiting = asyncio.create_task(add(db, 1, "test.wait"))
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    blocked += " AND query = 'COMMIT'"
    # Nothing tells us of a lock in PostgreSQL, so we look.
    while not await db.fetchval(blocked):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    let_go.set()
    await holder
    with pytest.raises(asyncpg.UniqueViolationError):
        await waiting
    assert await items(db) == [1]


async def test_a_read_sees_one_snapshot(db: Database) -> None:
    async with db.read() as connection:
        assert await connection.fetchval("SELECT count(*) FROM items") == 0
        await add(db, 1)
        assert await connection.fetchval("SELECT count(*) FROM items") == 0
    assert await items(db) == [1]


async def test_commits_wait_for_a_connection_in_order(db: Database) -> None:
    await asyncio.gather(*(add(db, item) for item in range(50)))
    assert await items(db) == list(range(50))
    connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1"
    connections += " AND datname = current_database()"
    assert await db.fetchval(connections, "counterfoil-test") <= 3


async def test_a_cancelled_waiter_gives_its_turn_to_the_next(empty_dsn: str) -> None:
    db = await Database.open(empty_dsn, service="test", pool_size=1)
    reached, go_on = pause_at("test.hold.before")

    async def hold() -> None:
        async with db.commit("test.hold"):
            pass

    holder = asyncio.create_task(hold())
    await reached.wait()
    first, second = (asyncio.create_task(db.fetchval("SELECT 1")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    go_on.set()
    assert await second == 1
    await holder
    await db.close()
    with pytest.raises(Unavailable):
        await db.fetchval("SELECT 1")


async def test_a_lost_connection_is_unavailable_and_the_pool_recovers(db: Database) -> None:
    async def end(connection: Connection) -> None:
        pid = await connection.fetchval("SELECT pg_backend_pid()")
        await db.commit_one("test.end", "SELECT pg_terminate_backend($1, 5000)", pid)

    async def lose() -> None:
        async with db.commit("test.add") as connection:
            await connection.execute(INSERT)
            await end(connection)
            await connection.execute("INSERT INTO items VALUES (2)")

    with pytest.raises(Unavailable) as lost:
        await lose()
    assert lost.value.__cause__ is not None
    await add(db, 3)
    assert await items(db) == [3]


async def test_a_server_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        await Database.open("postgresql://counterfoil@/x?host=/nonexistent", service="test")
