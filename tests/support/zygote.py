"""A process that imports everything once and forks the product's processes from itself.

Starting Python with all imports takes seconds, a fork milliseconds. Nothing of grpc or asyncio is
initialised before the fork. `python -m tests.support.zygote FD` serves the socket FD; tests use
`Zygote`:

    zygote = Zygote.start()
    process = zygote.fork("embedded", environment, log)
    await process.ready()     # what the role reports: its addresses
    await process.ended()     # its exit code, negative for a signal
"""

import asyncio
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from tests.support import clocks
from tests.support.processes import python_environment

_PR_SET_PDEATHSIG = 1
_MESSAGE_BYTES_MAX = 1 << 20
_ROOT = Path(__file__).parents[2]
_READY_SECONDS = 60.0

Report = Callable[[dict[str, str]], None]
_Pipe = tuple[asyncio.StreamReader, asyncio.ReadTransport]


class Dead(Exception):
    """The process ended before it was ready."""


class Zygote:
    """The forking process, seen from a test. One request at a time."""

    def __init__(self, control: socket.socket, process: "subprocess.Popen[bytes]") -> None:
        self._control = control
        self._process = process

    @classmethod
    def start(cls) -> Self:
        """Starts it, and waits until it has imported everything."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.zygote", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=python_environment(),
                cwd=_ROOT,
            )
        ours.settimeout(_READY_SECONDS)
        started = cls(ours, process)
        if started._receive() != {"ready": True}:
            raise RuntimeError("the zygote did not start; its errors are on standard error")
        return started

    def fork(self, role: str, environment: dict[str, str], log: Path) -> "Forked":
        """A new process in `role` ("embedded", "runner", "gateway" or a service's name) whose whole
        environment is `environment` and whose output is appended to `log`."""
        reading, writing = os.pipe()
        request = {"fork": role, "environment": environment, "log": str(log)}
        socket.send_fds(self._control, [json.dumps(request).encode()], [writing])
        os.close(writing)
        return Forked(self, role, self._receive()["pid"], reading)

    def wait(self, pid: int) -> int:
        """The exit code of a process that has ended or is about to."""
        self._control.send(json.dumps({"wait": pid}).encode())
        return self._receive()["code"]

    def stop(self) -> None:
        """Ends the zygote; what it forked dies with it."""
        self._control.close()
        self._process.wait(20)

    def _receive(self) -> Any:
        message = self._control.recv(_MESSAGE_BYTES_MAX)
        if not message:
            raise RuntimeError("the zygote is gone; its errors are on standard error")
        return json.loads(message)


class Forked:
    """A forked process."""

    def __init__(self, zygote: Zygote, role: str, pid: int, reports: int) -> None:
        self._zygote = zygote
        self.role = role
        self.pid = pid
        self.code: int | None = None
        self._reports = reports
        self._opening: asyncio.Task[_Pipe] | None = None
        self._ending = asyncio.Lock()

    async def ready(self) -> dict[str, str]:
        """What the process reported. Raises Dead when it ended before."""
        reader, _ = await self._opened()
        async with asyncio.timeout(_READY_SECONDS):
            line = await reader.readline()
        if not line:
            raise Dead(f"{self.role} ended with {await self.ended()} before it was ready")
        return json.loads(line)

    async def ended(self) -> int:
        """Waits until the process has ended; its exit code."""
        reader, transport = await self._opened()
        async with self._ending:
            if self.code is None:
                # The process holds the pipe's other end as long as it lives, and nobody else does.
                await reader.read()
                self.code = self._zygote.wait(self.pid)
                transport.close()
        return self.code

    def signal(self, number: int) -> None:
        """Sends a signal. Nothing when the process was waited for before."""
        if self.code is None:
            os.kill(self.pid, number)

    async def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self.signal(signal.SIGKILL)
        await self.ended()

    async def _opened(self) -> _Pipe:
        # Shielded: who waits for the process may be cancelled meanwhile, and it is killed then.
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> _Pipe:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._reports, "rb")
        )
        return reader, transport


def main(control: socket.socket) -> None:
    """Forks on request until the other end is closed."""
    _import_everything()
    gc.freeze()
    control.send(json.dumps({"ready": True}).encode())
    while True:
        message, fds, _, _ = socket.recv_fds(control, _MESSAGE_BYTES_MAX, 1)
        if not message:
            return
        request = json.loads(message)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = {"code": os.waitstatus_to_exitcode(status)}
        else:
            answer = {"pid": _fork(control, request, fds[0])}
            os.close(fds[0])
        control.send(json.dumps(answer).encode())


def _fork(control: socket.socket, request: dict[str, Any], reports: int) -> int:
    if threading.active_count() != 1:
        raise RuntimeError(f"threads before the fork: {threading.enumerate()}")
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _die_with(parent)
        control.close()
        _redirect(Path(request["log"]))
        os.environ.clear()
        os.environ.update(request["environment"])
        code = _play(request["fork"], reports)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _play(role: str, reports: int) -> int:
    from cli import logs
    from foundation import failpoints, metrics, telemetry

    clocks.set_ahead(float(os.environ.get(clocks.SECONDS, 0)))
    failpoints.reload()
    logs.configure(os.environ.get("COUNTERFOIL_LOG_LEVEL", "info"))
    telemetry.configure(f"counterfoil-{role}")
    # Only where a test asks for it: many systems run side by side.
    metrics.configure(f"counterfoil-{role}", os.environ.get("COUNTERFOIL_METRICS_ADDRESS", ""))

    def report(found: dict[str, str]) -> None:
        os.write(reports, json.dumps(found).encode() + b"\n")

    asyncio.run(_run(role, report))
    return 0


async def _run(role: str, report: Report) -> None:
    from cli.main import stop_event, until

    stop = stop_event()
    async with _running(role, report) as kernel:
        await until(stop, kernel.failure())


@asynccontextmanager
async def _running(role: str, report: Report) -> AsyncGenerator[Any]:
    from cli import processes
    from cli.embedded import running
    from foundation.settings import Settings

    settings = Settings.model_validate({})
    if role == "embedded":
        async with running(settings) as embedded:
            report({"rest": embedded.rest_url, "grpc": embedded.grpc_address})
            yield embedded.kernel
        return
    if role == "runner":
        started = processes.runner(settings)
    elif role == "gateway":
        started = processes.gateway(settings)
    else:
        started = processes.service(settings, role)
    async with started as process:
        report({"address": process.address})
        yield process.kernel


def _import_everything() -> None:
    from cli import composition

    composition.load()
    names = ["cli.embedded", "cli.main", "cli.processes"]
    names += ["services.runner.adapter.transport"]
    names += ["tests.support.platform_tool", "uvicorn.protocols.http.httptools_impl"]
    for name in names:
        importlib.import_module(name)


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _redirect(log: Path) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
