"""Statements that are sent often are committed together, and answered each for itself."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime

import asyncpg
import pytest

from foundation import failpoints
from foundation.storage import CommitUnknown, Database
from foundation.storage import database as database_module

PUT = """
INSERT INTO notes (workspace_id, session_id, number, transaction)
SELECT $1, $2, $3::integer, pg_current_xact_id()::text::bigint WHERE $3 <> 13
RETURNING number, $4::integer AS call
"""
# Waits for the lock that the test holds, and can be found by its text.
SLOW = """
INSERT INTO notes (workspace_id, session_id, number, transaction)
SELECT $1, $2, $3::integer, pg_current_xact_id()::text::bigint
FROM pg_advisory_xact_lock(77)
RETURNING number, $4::integer AS call
"""
SINCE = "SELECT max(query_start) FROM pg_stat_activity WHERE wait_event = 'advisory'"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'"


@pytest.fixture
def lock_ms() -> int:
    """How long a group waits for a lock; long enough for whoever looks on."""
    return 60_000


@pytest.fixture
async def db(
    empty_dsn: str, lock_ms: int, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Database]:
    monkeypatch.setattr(database_module, "_GROUP_LOCK_MS", lock_ms)
    database = await Database.open(empty_dsn, service="test", pool_size=2)
    await database.commit_one(
        "test.table",
        "CREATE TABLE notes (workspace_id text, session_id text, number int PRIMARY KEY,"
        " transaction bigint)",
    )
    yield database
    await database.close()


async def put(db: Database, number: int, session: str = "s") -> list[int]:
    rows = await db.commit_grouped("test.put", PUT, "w", session, number)
    return [row["number"] for row in rows]


async def stored(db: Database) -> dict[int, int]:
    rows = await db.fetch("SELECT number, transaction FROM notes ORDER BY number")
    return {row["number"]: row["transaction"] for row in rows}


async def test_what_comes_while_one_is_on_its_way_is_committed_together(db: Database) -> None:
    await asyncio.gather(*(put(db, number) for number in range(1, 9)))
    transactions = await stored(db)
    assert sorted(transactions) == list(range(1, 9))
    assert len(set(transactions.values())) < 8


async def test_each_caller_gets_its_own_rows(db: Database) -> None:
    """Number 13 stores nothing; the order on the wire is that of the sessions."""
    numbers = [5, 13, 4, 3, 2, 1]
    found = await asyncio.gather(*(put(db, number, f"s{number:02}") for number in numbers))
    assert found == [[5], [], [4], [3], [2], [1]]
    rows = await db.fetch("SELECT number FROM notes ORDER BY ctid")
    assert [row["number"] for row in rows] == [5, 1, 2, 3, 4]  # the first was sent alone


async def test_what_is_heavy_is_not_committed_together(db: Database) -> None:
    numbers = range(1, 5)
    heavy = (
        db.commit_grouped("test.put", PUT, "w", "s", number, weight=2 << 20) for number in numbers
    )
    await asyncio.gather(*heavy)
    assert len(set((await stored(db)).values())) == len(numbers)


async def test_many_are_committed_in_parts(db: Database) -> None:
    """The first goes alone, the others by 32: what follows on a part is decided while the next is
    stored."""
    await asyncio.gather(*(put(db, number) for number in range(14, 84)))
    sizes = Counter((await stored(db)).values()).values()
    assert sorted(sizes) == [1, 5, 32, 32]


async def test_what_fails_is_its_callers_alone(db: Database) -> None:
    await put(db, 3)
    found = await asyncio.gather(
        *(put(db, number) for number in (1, 2, 3, 4)), return_exceptions=True
    )
    assert found[:2] == [[1], [2]]
    assert isinstance(found[2], asyncpg.UniqueViolationError)
    assert found[3] == [4]
    assert sorted(await stored(db)) == [1, 2, 3, 4]


async def test_an_argument_that_does_not_fit_is_its_callers_alone(db: Database) -> None:
    wrong = db.commit_grouped("test.put", PUT, "w", "s", "no number")
    found = await asyncio.gather(put(db, 1), put(db, 2), wrong, put(db, 3), return_exceptions=True)
    assert [found[0], found[1], found[3]] == [[1], [2], [3]]
    assert isinstance(found[2], asyncpg.DataError)


async def test_each_effect_hits_its_own_before_and_after(db: Database) -> None:
    hits: list[str] = []

    async def hook(name: str) -> None:
        hits.append(name)

    failpoints.install(hook)
    await asyncio.gather(*(put(db, number) for number in range(1, 5)))
    assert hits[:4] == ["test.put.before"] * 4
    assert hits[4:] == ["test.put.after"] * 4


class _Held:
    """The lock that SLOW waits for, held by somebody else."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    async def __aenter__(self) -> "asyncpg.Connection[asyncpg.Record]":
        self.connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(self._dsn)
        await self.connection.execute("SELECT pg_advisory_lock(77)")
        return self.connection

    async def __aexit__(self, *_: object) -> None:
        await self.connection.close()


async def _until(db: Database, waiting: int) -> None:
    async with asyncio.timeout(20):
        while await db.fetchval(WAITING) != waiting:  # each look is a round trip
            pass


async def _until_waiting_since(db: Database, began: datetime) -> None:
    async with asyncio.timeout(20):
        while (await db.fetchval(SINCE) or began) <= began:
            pass


def slow(db: Database, number: int) -> "asyncio.Task[list[object]]":
    async def call() -> list[object]:
        return [*await db.commit_grouped("test.slow", SLOW, "w", "s", number)]

    return asyncio.create_task(call())


async def test_a_caller_that_leaves_does_not_stop_the_others(db: Database, empty_dsn: str) -> None:
    async with _Held(empty_dsn):
        first = slow(db, 1)
        await _until(db, 1)
        began = await db.fetchval(SINCE)
        unsent, left, stays = slow(db, 2), slow(db, 3), slow(db, 4)
        await asyncio.sleep(0)
        unsent.cancel()
        first.cancel()
        await asyncio.wait([unsent, first])
        await _until_waiting_since(db, began)
        left.cancel()
        await asyncio.wait([left])
    await stays
    found = await stored(db)
    assert 4 in found
    assert not found.keys() & {1, 2}


async def test_a_transaction_for_which_nobody_waits_is_cut_off(
    db: Database, empty_dsn: str
) -> None:
    async with _Held(empty_dsn):
        first, second = slow(db, 1), slow(db, 2)
        await _until(db, 1)
        for task in (first, second):
            task.cancel()
        await asyncio.wait([first, second])
        await _until(db, 0)
    assert await put(db, 3) == [3]
    assert sorted(await stored(db)) == [3]


async def test_a_connection_lost_on_the_way_leaves_all_of_them_unknown(
    db: Database, empty_dsn: str
) -> None:
    async with _Held(empty_dsn) as other:
        first = slow(db, 1)
        await _until(db, 1)
        behind = [slow(db, 2), slow(db, 3)]
        await asyncio.sleep(0)
        await other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'advisory'"
        )
        with pytest.raises(CommitUnknown):
            await first
    await asyncio.gather(*behind)
    assert sorted(await stored(db)) == [2, 3]


async def test_in_a_joint_transaction_it_is_a_part_of_that(db: Database) -> None:
    with contextlib.suppress(LookupError):
        async with db.joint("test.joint"):
            assert await put(db, 1) == [1]
            raise LookupError
    assert await stored(db) == {}


MINE = """
INSERT INTO notes (workspace_id, session_id, number, transaction)
SELECT $1, $2, $3::integer, pg_current_xact_id()::text::bigint
FROM pg_advisory_xact_lock(CASE WHEN $3 < 10 THEN 77 ELSE $3 END)
RETURNING number, $4::integer AS call
"""


def mine(db: Database, number: int) -> "asyncio.Task[list[object]]":
    async def call() -> list[object]:
        return [*await db.commit_grouped("test.mine", MINE, "w", f"s{number}", number)]

    return asyncio.create_task(call())


@pytest.mark.parametrize("lock_ms", [20])
@pytest.mark.parametrize("held_up", [(1,), (11, 1, 2, 12)], ids=["alone", "in a group"])
async def test_who_waits_for_a_lock_holds_up_nobody_else(
    db: Database, empty_dsn: str, held_up: tuple[int, ...]
) -> None:
    """Numbers below ten need the lock that somebody else holds."""
    async with _Held(empty_dsn):
        first = [mine(db, number) for number in held_up]
        later = [mine(db, number) for number in (13, 14, 15)]
        free = [task for task, number in zip(first, held_up, strict=True) if number > 9]
        await asyncio.gather(*later, *free)
        later_still = [mine(db, number) for number in (16, 17)]
        await asyncio.gather(*later_still)
        assert not {1, 2} & (await stored(db)).keys()
    await asyncio.gather(*first)
    assert sorted(await stored(db)) == sorted({*held_up, 13, 14, 15, 16, 17})
