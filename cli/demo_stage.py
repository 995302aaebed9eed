"""The processes of the demo: a server that can be killed, the example, a scripted human."""

import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, STDOUT

REPO = Path(__file__).resolve().parent.parent
EXAMPLE = REPO / "examples" / "hitl_gate" / "main.py"

READY_SECONDS_MAX = 25.0
STOP_SECONDS_MAX = 10.0
_POLL_SECONDS = 0.05
_HOST = "127.0.0.1"
# Below the range that the kernel takes for outgoing connections, so that a port stays free while
# its server is dead.
_PORTS = range(20_000, 32_000)
_LOG_TAIL_CHARS = 3_000


class DemoFailed(Exception):
    """Something was not as it should be; the message says what."""


@dataclass
class Server:
    """`counterfoil run` on a data folder and two ports that stay the same between its lives."""

    folder: Path
    port: int
    grpc_port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Where REST listens."""
        return f"http://{_HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id; 0 when it does not run."""
        return self._process.pid if self._process else 0

    def environment(self) -> dict[str, str]:
        """Our environment with this server's settings and nobody else's."""
        return {
            **without_settings(),
            "COUNTERFOIL_DATA_DIR": str(self.folder / "data"),
            "COUNTERFOIL_PORT": str(self.port),
            "COUNTERFOIL_GRPC_PORT": str(self.grpc_port),
        }

    def start(self) -> float:
        """Start it; returns the seconds until it was ready. Raises DemoFailed."""
        began = time.monotonic()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                counterfoil("run"), env=self.environment(), cwd=self.folder, stdout=log, stderr=log
            )
        while not self._ready():
            if self._process.poll() is not None:
                raise DemoFailed(f"the server ended with {self._process.returncode}")
            if time.monotonic() - began > READY_SECONDS_MAX:
                raise DemoFailed(f"the server was not ready after {READY_SECONDS_MAX:.0f} s")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL: it cannot notice, say goodbye or write anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """What Ctrl-C does; SIGKILL if that takes too long. Does nothing when it does not run."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def log_tail(self) -> str:
        """The end of what it printed."""
        if not self._log.exists():
            return ""
        return self._log.read_text(errors="replace")[-_LOG_TAIL_CHARS:]

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as response:
                return response.status == 200
        except (urllib.error.URLError, OSError):
            return False


class Example:
    """The example in a process of its own, with a pipe in place of its terminal."""

    def __init__(self, environment: dict[str, str], state: Path, show: Callable[[str], None]):
        self._show = show
        self._text = ""
        self._shown = 0
        self._process = subprocess.Popen(
            [sys.executable, str(EXAMPLE), "--state", str(state)],
            env=environment,
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
        )

    @property
    def text(self) -> str:
        """Everything that it has printed."""
        return self._text

    def read_until(self, marker: str, seconds: float) -> None:
        """Read what it prints until `marker` stands there. Raises DemoFailed."""
        deadline = time.monotonic() + seconds
        while marker not in self._text:
            if not self._read(deadline):
                raise DemoFailed(f"the example ended before it said {marker!r}")

    def say(self, line: str) -> None:
        """Type a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()
        self._text += f"{line}\n"
        self._show_lines()

    def finish(self, seconds: float) -> int:
        """Read to the end; returns the exit status. Raises DemoFailed when it takes longer."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        self._show_lines(rest=True)
        return self._process.wait(STOP_SECONDS_MAX)

    def stop(self) -> None:
        """End it, if it still runs, and close its pipes."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self, deadline: float) -> bool:
        assert self._process.stdout is not None
        number = self._process.stdout.fileno()
        if not select.select([number], [], [], max(deadline - time.monotonic(), 0))[0]:
            raise DemoFailed("the example said nothing more for too long")
        chunk = os.read(number, 65_536)
        self._text += chunk.decode(errors="replace")
        self._show_lines()
        return bool(chunk)

    def _show_lines(self, *, rest: bool = False) -> None:
        end = len(self._text) if rest else self._text.rfind("\n") + 1
        for line in self._text[self._shown : end].splitlines():
            if line:
                self._show(line)
        self._shown = max(end, self._shown)


def counterfoil(*arguments: str) -> list[str]:
    """The command line that runs this very installation's `counterfoil`."""
    return [sys.executable, "-m", "cli", *arguments]


def without_settings() -> dict[str, str]:
    """Our environment without settings of Counterfoil and credentials of model providers."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("COUNTERFOIL_", "ANTHROPIC_"))
    }


def free_ports(number: int) -> list[int]:
    """Ports of this machine on which nothing listens."""
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
