"""Notifications say "look again"; losing one, or the connection, loses nothing else."""

import asyncio
from collections.abc import AsyncGenerator

import asyncpg
import pytest

from foundation.storage import Database


@pytest.fixture
async def db(empty_dsn: str) -> AsyncGenerator[Database]:
    database = await Database.open(empty_dsn, service="test", pool_size=2)
    yield database
    await database.close()


@pytest.fixture
async def other(empty_dsn: str) -> AsyncGenerator[Database]:
    """Another process of the same service."""
    database = await Database.open(empty_dsn, service="test", pool_size=2)
    yield database
    await database.close()


async def receive(queue: "asyncio.Queue[str | None]") -> str | None:
    async with asyncio.timeout(10):
        return await queue.get()


async def cut_listeners(dsn: str) -> None:
    admin = await asyncpg.connect(dsn)
    await admin.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE application_name = 'counterfoil-test-notify' AND datname = current_database()"
    )
    await admin.close()


async def test_waiting_payloads_are_sent_once_in_order(db: Database, other: Database) -> None:
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    await other.listen("wake", heard.put_nowait)
    for payload in ("a", "b", "a", "a", "c"):
        db.notify_soon("wake", payload)
    db.notify_soon("other", "x")
    assert [await receive(heard) for _ in range(3)] == ["a", "b", "c"]
    db.notify_soon("wake", "end")
    assert await receive(heard) == "end"


async def test_a_payload_that_is_too_long_means_look_at_everything(
    db: Database, other: Database
) -> None:
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    await other.listen("wake", heard.put_nowait)
    db.notify_soon("wake", "x" * 7_999)
    db.notify_soon("wake", "ä" * 4_000)
    assert await receive(heard) == "x" * 7_999
    assert await receive(heard) is None


async def test_after_a_lost_connection_listeners_look_at_everything(
    db: Database, other: Database, empty_dsn: str
) -> None:
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    await other.listen("wake", heard.put_nowait)
    await cut_listeners(empty_dsn)
    assert await receive(heard) is None
    db.notify_soon("wake", "after")
    assert await receive(heard) == "after"


async def test_a_notification_survives_a_lost_connection(
    db: Database, other: Database, empty_dsn: str
) -> None:
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    await other.listen("wake", heard.put_nowait)
    db.notify_soon("wake", "first")
    assert await receive(heard) == "first"
    await cut_listeners(empty_dsn)
    db.notify_soon("wake", "second")
    assert await receive(heard) in ("second", None)


async def test_nothing_is_sent_while_nobody_else_listens(db: Database, other: Database) -> None:
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    await db.listen("wake", lambda _: None)
    db.notify_soon("wake", "to nobody")
    await other.listen("wake", heard.put_nowait)
    witness: asyncio.Queue[str | None] = asyncio.Queue()
    await db.listen("seen", witness.put_nowait)
    other.notify_soon("seen", "the other is here")  # behind what made it known
    assert await receive(witness) == "the other is here"
    db.notify_soon("wake", "to the other")
    assert await receive(heard) == "to the other"


async def test_a_failing_callback_costs_the_others_nothing(
    db: Database, other: Database, caplog: pytest.LogCaptureFixture
) -> None:
    heard: asyncio.Queue[str | None] = asyncio.Queue()

    def fail(_: str | None) -> None:
        raise LookupError("mistake")

    await other.listen("wake", fail)
    await other.listen("wake", heard.put_nowait)
    db.notify_soon("wake", "a")
    assert await receive(heard) == "a"
    assert "a notification callback failed" in caplog.text


async def test_unlisten_ends_it(db: Database, other: Database) -> None:
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    gone: asyncio.Queue[str | None] = asyncio.Queue()
    await other.listen("wake", gone.put_nowait)
    await other.unlisten("wake", gone.put_nowait)
    await other.listen("other", heard.put_nowait)
    db.notify_soon("wake", "a")
    db.notify_soon("other", "b")
    assert await receive(heard) == "b"
    assert gone.empty()
