"""Whatever writes several threads at once locks them in one order."""

import asyncio

import asyncpg
import pytest

from services.ledger import lease_store
from tests.services.ledger.turns.driver import Ledger

_STREAM = "strm_of_two"


@pytest.mark.parametrize("work", ["renew", "free_stream", "free_orphans", "free_boots"])
async def test_leases_are_locked_in_the_order_of_sessions(
    ledger: Ledger, dsn: str, work: str
) -> None:
    """As grouped writes lock them: neither waits for the other while that waits for it."""
    first, second = [(await ledger.create()).id for _ in range(2)]
    lease = "UPDATE ledger.threads SET lease_stream = $2, epoch = 1 WHERE session_id = $1"
    for session in (second, first):  # the second comes first in the table
        await ledger.db.commit_one("test.lease", lease, session, _STREAM)
    rows = await ledger.db.fetch("SELECT thread_id FROM ledger.threads")
    calls = {
        "renew": lambda: lease_store.renew(ledger.db, _STREAM, 10_000),
        "free_stream": lambda: lease_store.free_stream(ledger.db, _STREAM),
        "free_orphans": lambda: lease_store.free_orphans(
            ledger.db, _STREAM, [(row["thread_id"], 1) for row in rows]
        ),
        "free_boots": lambda: lease_store.free_boots(ledger.db, "strm_of"),
    }
    lock = "SELECT FROM ledger.threads WHERE session_id = $1 FOR UPDATE NOWAIT"
    waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"
    other = await asyncpg.connect(dsn)
    try:
        async with other.transaction():
            await other.execute(lock, first)
            task = asyncio.ensure_future(calls[work]())
            async with asyncio.timeout(20):
                while not await other.fetchval(waiting):
                    pass
            await other.execute(lock, second)
    finally:
        await other.close()
    await task
    assert not await ledger.db.fetchval(
        "SELECT count(*) FROM ledger.threads WHERE lease_stream = $1 AND lease_expires_at IS NULL",
        _STREAM,
    )
