"""The embedded PostgreSQL: durable, private, gone with its process, back with the next one."""

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from foundation.postgres import EmbeddedPostgres, PostgresFailed, settings
from foundation.postgres.processes import servers_on
from foundation.storage import ConfigurationError, Database, Unavailable
from foundation.storage.connect import DRIVER_ERRORS
from tests.support.processes import python_environment
from tests.support.waiting import eventually

WRITER = """
import asyncio, sys
from pathlib import Path
from foundation.postgres import EmbeddedPostgres
from foundation.storage import Database

async def write(db, lane):
    for number in range(100_000):
        async with db.commit("test.write") as connection:
            await connection.execute("INSERT INTO written VALUES ($1, $2)", lane, number)
        print(lane, number, flush=True)

async def main():
    server = EmbeddedPostgres()
    db = await Database.open(await server.start(Path(sys.argv[1])), service="writer")
    async with db.commit("test.create") as connection:
        await connection.execute("CREATE TABLE IF NOT EXISTS written (lane int, number int)")
        await connection.execute("TRUNCATE written")
    await asyncio.gather(*(write(db, lane) for lane in range(4)))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cluster for the module; every test starts and stops its own server on it."""
    return tmp_path_factory.mktemp("pg") / "postgres"


@pytest.fixture
async def server(folder: Path) -> AsyncGenerator[EmbeddedPostgres]:
    started = EmbeddedPostgres()
    yield started
    await started.stop()
    assert servers_on(folder / "cluster") == []


def start_writer(folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(folder)]
    environment = python_environment()
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def start_stranger(user: int | None) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["/bin/sleep", "20"], user=user)


def process_status(pid: int | None) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines)


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        # Nobody tells us of the end of a stranger's child, so we look.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_it_is_private_and_durable(server: EmbeddedPostgres, folder: Path) -> None:
    connection = await asyncpg.connect(await server.start(folder))
    shown = {name: await connection.fetchval(f"SHOW {name}") for name in settings.DURABLE}
    assert shown == {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
    assert await connection.fetchval("SHOW listen_addresses") == ""
    assert await connection.fetchval("SHOW server_encoding") == "UTF8"
    assert await connection.fetchval("SELECT 'a' < 'B'") is False  # C order
    await connection.close()
    modes = {stat.S_IMODE((folder / name).stat().st_mode) for name in (".", "cluster", "socket")}
    assert modes == {0o700}


async def test_a_pool_recovers_when_postgresql_is_started_again(
    server: EmbeddedPostgres, folder: Path
) -> None:
    dsn = await server.start(folder)
    db = await Database.open(dsn, service="test")
    other = await Database.open(dsn, service="test")
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    await other.listen("wake", heard.put_nowait)
    await asyncio.gather(*(db.fetchval("SELECT pg_sleep(0.01)") for _ in range(8)))
    await server.stop()
    for _ in range(3):
        with pytest.raises(Unavailable):
            await db.fetchval("SELECT 1")
    with pytest.raises(Unavailable):
        async with db.commit("test.add"):
            pass
    db.notify_soon("wake", "meanwhile")
    assert await server.start(folder) == dsn
    assert await asyncio.gather(*(db.fetchval("SELECT 1") for _ in range(20))) == [1] * 20
    async with asyncio.timeout(10):
        assert await heard.get() is None  # "look at everything": whatever was sent meanwhile
    await other.close()
    await db.close()


async def test_it_is_started_again_when_it_dies_alone(
    server: EmbeddedPostgres, folder: Path
) -> None:
    dsn = await server.start(folder)
    db = await Database.open(dsn, service="test")
    first = server.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(20):
        while True:
            try:
                assert await db.fetchval("SELECT 1") == 1
            except Unavailable:
                await asyncio.sleep(0.01)
            else:
                if server.pid != first:
                    break
    await db.close()


async def test_it_is_started_again_when_it_dies_while_it_is_started_again(
    server: EmbeddedPostgres, folder: Path
) -> None:
    dsn = await server.start(folder)
    for _ in range(2):
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda pid=pid: server.pid != pid)

    async def answers() -> bool:
        with suppress(*DRIVER_ERRORS):
            await (await asyncpg.connect(dsn)).close()
            return True
        return False

    await eventually(answers)


async def test_after_kill_9_of_its_process_it_ends_and_every_answered_commit_is_there(
    server: EmbeddedPostgres, folder: Path
) -> None:
    for wait_for_the_end in (True, False):
        with start_writer(folder) as writer:
            assert writer.stdout is not None
            answered = [writer.stdout.readline() for _ in range(400)]
            assert servers_on(folder / "cluster")
            writer.kill()
            answered += writer.stdout.readlines()
        if wait_for_the_end:
            await until(lambda: servers_on(folder / "cluster") == [])
        connection = await asyncpg.connect(await server.start(folder))
        rows = await connection.fetch("SELECT lane, number FROM written")
        stored = {(row["lane"], row["number"]) for row in rows}
        await connection.close()
        await server.stop()
        complete = [line for line in answered if line.endswith("\n")]
        assert len(complete) >= 400
        assert {tuple(map(int, line.split())) for line in complete} <= stored
        assert len(stored) == len(rows)


async def test_nobody_tries_to_connect_while_it_recovers(
    server: EmbeddedPostgres, folder: Path
) -> None:
    with start_writer(folder) as writer:
        assert writer.stdout is not None
        assert [writer.stdout.readline() for _ in range(20)]
        writer.send_signal(signal.SIGSTOP)  # or it would start the server again
        for pid in servers_on(folder / "cluster"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        writer.kill()
    await until(lambda: servers_on(folder / "cluster") == [])
    log = folder / "postgres.log"
    before = log.stat().st_size
    await server.start(folder)
    said = log.read_bytes()[before:].decode()
    assert "automatic recovery in progress" in said
    assert "FATAL" not in said


async def test_a_pid_file_with_a_recycled_pid_does_not_hinder_a_start(
    server: EmbeddedPostgres, folder: Path
) -> None:
    await server.start(folder)
    await server.stop()
    # PostgreSQL believes a pid of its own user, and of no other.
    user = (folder / "cluster").stat().st_uid
    with start_stranger(None if user == os.geteuid() else user) as stranger:
        lines = f"{stranger.pid}\n{folder}/cluster\n1\n5432\n{folder}/socket\n\n"
        server.pid_file.write_text(lines)
        (folder / "socket" / ".s.PGSQL.5432.lock").write_text(lines)
        connection = await asyncpg.connect(await server.start(folder))
        await connection.close()
        assert stranger.poll() is None
        stranger.kill()


async def test_the_thread_that_starts_it_may_end(server: EmbeddedPostgres, folder: Path) -> None:
    thread = threading.Thread(target=lambda: asyncio.run(server.start(folder)))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert server.pid is not None
    dsn = f"postgresql://{settings.SUPERUSER}@/{settings.DATABASE}?host={folder}/socket"
    for _ in range(10):
        connection = await asyncpg.connect(dsn)
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()


async def test_a_second_supervisor_is_refused(server: EmbeddedPostgres, folder: Path) -> None:
    await server.start(folder)
    with pytest.raises(PostgresFailed, match="another process supervises"):
        await EmbeddedPostgres().start(folder)


@pytest.mark.parametrize("name", ["fsync", "full_page_writes", "synchronous_commit"])
async def test_services_refuse_a_server_that_could_lose_a_commit(
    server: EmbeddedPostgres, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(settings.DURABLE, name, "off")
    dsn = await server.start(folder)
    with pytest.raises(ConfigurationError, match=f"{name} = off.*Set {name} = on"):
        await Database.open(dsn, service="test")


async def test_a_server_that_cannot_start_says_why(
    server: EmbeddedPostgres, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.SIZED, "max_connections", "many")
    with pytest.raises(PostgresFailed, match='invalid value for parameter "max_connections"'):
        await server.start(folder)


async def test_a_half_done_initdb_is_wiped_and_repeated(tmp_path: Path) -> None:
    folder = tmp_path / "postgres"
    (folder / "cluster.unfinished").mkdir(parents=True)
    (folder / "cluster.unfinished" / "PG_VERSION").write_text("18\n")
    server = EmbeddedPostgres()
    connection = await asyncpg.connect(await server.start(folder))
    await connection.close()
    await server.stop()
    assert not (folder / "cluster.unfinished").exists()


async def test_it_works_below_folders_that_only_we_may_enter_and_with_a_long_path(
    tmp_path: Path,
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    folder = closed / ("long" * 20) / "post gres"
    server = EmbeddedPostgres()
    dsn = await server.start(folder)
    connection = await asyncpg.connect(dsn)
    await connection.close()
    await server.stop()
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert await server.start(folder) == dsn
    await server.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes the user")
async def test_started_by_root_it_keeps_one_capability_at_most(
    server: EmbeddedPostgres, folder: Path
) -> None:
    await server.start(folder)
    status = process_status(server.pid)
    assert "0" not in status["Uid"].split() + status["Gid"].split()
    assert status["Groups"].split() in ([], [status["Gid"].split()[0]])
    assert int(status["CapEff"], 16) in (0, 1 << 2)
    assert status["CapPrm"] == status["CapEff"]
    assert status["NoNewPrivs"] == "1"


async def test_only_its_owner_gets_in(server: EmbeddedPostgres, folder: Path) -> None:
    await server.start(folder)
    path = folder / "socket" / ".s.PGSQL.5432"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    hba = (folder / "cluster" / "pg_hba.conf").read_text()
    assert hba == "local all all peer map=counterfoil\n"
