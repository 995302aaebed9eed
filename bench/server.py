"""What is measured: `counterfoil run` as users start it, in processes of its own."""

import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

READY_SECONDS_MAX = 90.0
_STOP_SECONDS_MAX = 20.0
_POLL_SECONDS = 0.01
_HOST = "127.0.0.1"
_PORTS = range(20_000, 32_000)
COUNTERFOIL = ("-m", "cli")
"""The command of this very installation."""


class ServerFailed(Exception):
    """A process did not start, or ended; the text holds the end of its log."""


class Server:
    """One process with the processes that it starts, and its log."""

    def __init__(
        self,
        name: str,
        folder: Path,
        arguments: Sequence[str],
        environment: dict[str, str],
        program: str = sys.executable,
    ) -> None:
        """`program` is Python unless said; empty when the arguments begin with it."""
        self._program = [program] if program else []
        self.name = name
        self._folder = folder
        self._arguments = arguments
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the process itself."""
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        """Starts it; it may not be ready yet."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._program, *self._arguments],
                env={**clean_environment(), **self._environment},
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )

    def ready(self, word: str, url: str = "") -> None:
        """Waits until the log says `word`, and `url` answers. Raises ServerFailed."""
        assert self._process is not None
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self._says(word, url):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"{self.name} did not get ready\n{self.tail()}")
            time.sleep(_POLL_SECONDS)

    def finished(self) -> None:
        """Waits until it has ended by itself. Raises ServerFailed unless it ended well."""
        assert self._process is not None
        if self._process.wait(READY_SECONDS_MAX) != 0:
            raise ServerFailed(f"{self.name} failed\n{self.tail()}")

    def kill_all(self) -> None:
        """SIGKILL for the process and everything that it started."""
        if self._process is None:
            return
        family = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
        for one in family:
            _kill(one)
        self._process.wait()
        psutil.wait_procs(family, timeout=_STOP_SECONDS_MAX)

    def stop(self) -> None:
        """What Ctrl-C does; SIGKILL if that takes too long."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill_all()

    def tail(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-3_000:] if self._log.exists() else ""

    @property
    def _log(self) -> Path:
        return self._folder / f"{self.name}.log"

    def _says(self, word: str, url: str) -> bool:
        if word and word not in self._log.read_text(errors="replace"):
            return False
        if not url:
            return True
        try:
            with urllib.request.urlopen(url, timeout=2) as response:
                return response.status == 200
        except (urllib.error.URLError, OSError):
            return False


class Embedded:
    """`counterfoil run` on a fresh data folder."""

    def __init__(self, folder: Path, arguments: Sequence[str] = (*COUNTERFOIL, "run")) -> None:
        rest, grpc = free_ports(2)
        self.url = f"http://{_HOST}:{rest}"
        self.grpc = f"{_HOST}:{grpc}"
        self.data = folder / "data"
        self.server = Server(
            "counterfoil",
            folder,
            arguments,
            {
                "COUNTERFOIL_DATA_DIR": str(self.data),
                "COUNTERFOIL_PORT": str(rest),
                "COUNTERFOIL_GRPC_PORT": str(grpc),
                "COUNTERFOIL_LOG_LEVEL": "warning",
            },
        )

    def start(self) -> float:
        """Starts it; the seconds until it was ready."""
        began = time.monotonic()
        self.server.start()
        self.server.ready("", f"{self.url}/readyz")
        return time.monotonic() - began


@contextmanager
def embedded(*arguments: str) -> Generator[Embedded]:
    """A running `counterfoil run` (or the given arguments of Python) and no trace of it later."""
    with folder() as place:
        system = Embedded(place, arguments) if arguments else Embedded(place)
        try:
            system.start()
            yield system
        finally:
            system.server.stop()


@contextmanager
def folder() -> Generator[Path]:
    """A folder that is removed at the end."""
    with tempfile.TemporaryDirectory(
        prefix="counterfoil-bench-", ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


def free_ports(number: int) -> list[int]:
    """Ports on which nobody listens, below those of outgoing connections."""
    found: list[int] = []
    while len(found) < number:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def many_files() -> None:
    """Lets this process and those that it starts open as many sockets as the machine allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def clean_environment() -> dict[str, str]:
    """Ours without settings of Counterfoil and credentials, with this package importable."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("COUNTERFOIL_", "ANTHROPIC_"))
    }
    root = Path(__file__).resolve().parent.parent
    return {**kept, "PYTHONPATH": f"{root}:{root / 'gen' / 'python'}"}
