"""Holding the data folder proves that no earlier owner lives only for leases that lie in it."""

import asyncio
from pathlib import Path

import asyncpg

from tests.cli.support import running
from tests.support.postgres import SessionPostgres

LEASED = """
INSERT INTO ledger.threads (thread_id, session_id, workspace_id, epoch, deleted, lease_stream,
    lease_expires_at, ended, head_seq, head_digest, created_at)
VALUES ('sthr_1', 'sesn_1', 'wrkspc_1', 1, FALSE, 'stream_of_somebody_else',
    now() + interval '1 hour', 1, 0, '', now())
"""


async def test_leases_in_a_shared_database_are_left_alone(
    postgres: SessionPostgres, tmp_path: Path
) -> None:
    async with postgres.database("ledger") as dsn:
        connection = await asyncpg.connect(dsn)
        await connection.execute(LEASED)

        def run_once() -> None:
            with running(tmp_path / "data", COUNTERFOIL_LEDGER_DATABASE_URL=dsn) as run:
                assert run.interrupt()[0] == 0

        await asyncio.to_thread(run_once)
        lease = await connection.fetchval("SELECT lease_stream FROM ledger.threads")
        assert lease == "stream_of_somebody_else"

        boots = (tmp_path / "data" / "boots_id").read_text()
        await connection.execute("UPDATE ledger.threads SET lease_stream = $1", f"{boots}/strm_1")
        await asyncio.to_thread(run_once)
        lease = await connection.fetchval("SELECT lease_stream FROM ledger.threads")
        await connection.close()
    assert lease is None
