"""The process is ready fast, ends cleanly, and does not outlive its parent."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.offline_model.support import ROOT, running, script


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(number: signal.Signals) -> None:
    with running() as server:
        assert server.http.get("/healthz").json() == {"status": "ok"}
        server.process.send_signal(number)
        assert server.process.wait(5) == 0


def test_a_held_request_does_not_delay_the_end() -> None:
    with running() as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.say, script({"content": ["released"], "hold": "h"}))
        assert server.get("/control/holds/h?wait=1")["waiting"] == 1
        begun = time.monotonic()
        server.process.terminate()
        assert server.process.wait(5) == 0
        assert time.monotonic() - begun < 3
        assert asked.result(5)["content"][0]["text"] == "released"


def test_it_dies_with_its_parent() -> None:
    command = [sys.executable, "-m", "offline_model", "--parent-death"]
    code = (
        "import subprocess,sys,time\n"
        f"p = subprocess.Popen({command!r})\n"
        "print(p.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert parent.stdout is not None
    with parent.stdout as lines:
        told = {word for _ in range(2) for word in lines.readline().split()}
        child = psutil.Process(int(next(word for word in told if word.isdigit())))
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(5)
        psutil.wait_procs([child], timeout=5)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_it_is_light() -> None:
    code = (
        "import sys, offline_model.__main__\n"
        "heavy = {'anthropic', 'pydantic', 'starlette', 'grpc', 'sqlalchemy', 'foundation'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert told.stdout.strip() == "[]"
