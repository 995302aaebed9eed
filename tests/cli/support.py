"""`counterfoil run` as an operator starts it: a process of its own with a data folder."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil

from tests.support.processes import python_environment

READY_SECONDS = 60
KEY = "cf-local-development"


@dataclass
class Run:
    """A started process; `lines` is its banner."""

    process: "subprocess.Popen[str]"
    banner: dict[str, str]
    log: Path

    @property
    def rest_url(self) -> str:
        return self.banner["REST"]

    @property
    def ports(self) -> list[int]:
        return [int(self.banner[name].rpartition(":")[2]) for name in ("REST", "gRPC")]

    @property
    def children(self) -> list[psutil.Process]:
        """Every process that it started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def http(self) -> httpx2.Client:
        headers = {"authorization": f"Bearer {KEY}"}
        return httpx2.Client(base_url=self.rest_url, headers=headers, timeout=20)

    def interrupt(self) -> tuple[int, float]:
        """Ctrl-C: exit code, and seconds until it had ended."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30), time.monotonic() - started


def environment(data: Path, **settings: str) -> dict[str, str]:
    """Any free ports, and this data folder."""
    chosen = {
        "COUNTERFOIL_DATA_DIR": str(data),
        "COUNTERFOIL_PORT": "0",
        "COUNTERFOIL_GRPC_PORT": "0",
        "COUNTERFOIL_METRICS_ADDRESS": "off",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    return python_environment(**{**chosen, **settings})


def command(*words: str) -> list[str]:
    """The installed command's entry point, without the need for an installation."""
    return [sys.executable, "-m", "cli", *words]


@contextmanager
def running(data: Path, **settings: str) -> Generator[Run]:
    """`counterfoil run`, once it said that it is ready; killed at the end."""
    log = data.parent / f"{data.name}.log"
    with log.open("a") as output:
        process = subprocess.Popen(
            command("run"),
            env=environment(data, **settings),
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )
    with process:
        try:
            yield Run(process, _banner(process, log), log)
        finally:
            process.kill()


def _banner(process: "subprocess.Popen[str]", log: Path) -> dict[str, str]:
    assert process.stdout is not None
    found: dict[str, str] = {}
    for line in process.stdout:
        if line.startswith("Stop with"):
            return found
        name, _, value = line.strip().partition("  ")
        found[name] = value.strip()
    raise AssertionError(f"it ended before it was ready: {log.read_text()[-4000:]}")


def refused(data: Path, *words: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """A command that ends by itself."""
    return subprocess.run(
        command(*(words or ("run",))),
        env=environment(data, **settings),
        capture_output=True,
        text=True,
        timeout=60,
    )


def one_line(done: "subprocess.CompletedProcess[str]") -> str:
    """The only thing that a refused start says."""
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("counterfoil: "), done.stderr
    return line


def gone(processes: list[psutil.Process], seconds: float = 10) -> bool:
    """Whether all of them end within that time."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]


def post(client: httpx2.Client, path: str, body: dict[str, Any]) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()
