"""`counterfoil demo` shows what it says, and leaves nothing behind."""

import asyncio
import os
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT, Process

import pytest

from cli.demo_stage import free_ports, without_settings
from foundation.settings import DEVELOPMENT_KEY
from tests.examples.stage import SECONDS_MAX, Stage
from tests.support.processes import python_environment

COMMAND = "import typer; from cli.demo import demo; typer.run(demo)"


def _hear_ctrl_c() -> None:
    """A suite that runs in the background of a shell inherits that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def _start(**environment: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        COMMAND,
        env=without_settings() | python_environment(**environment),
        stdout=PIPE,
        stderr=STDOUT,
        start_new_session=True,
        preexec_fn=_hear_ctrl_c,
    )


async def _text(process: Process) -> str:
    async with asyncio.timeout(SECONDS_MAX):
        text, _ = await process.communicate()
    return text.decode()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _rest_port(text: str) -> int:
    found = re.search(r"ready after [\d.]+ s at http://127\.0\.0\.1:(\d+)", text)
    assert found, text
    return int(found[1])


async def test_the_demo_survives_its_own_kill() -> None:
    process = await _start()
    text = await _text(process)
    assert process.returncode == 0, text
    for said in ("kill -9", "1 end of the turn", "Everything holds.", "Done."):
        assert said in text
    assert _is_free(_rest_port(text))


@pytest.mark.full
async def test_the_demo_stops_at_ctrl_c_and_takes_everything_along() -> None:
    process = await _start()
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS_MAX):
        seen = (await process.stdout.readuntil(b"Created session")).decode()
    os.killpg(process.pid, signal.SIGINT)
    text = seen + await _text(process)
    assert process.returncode == 130, text
    assert _is_free(_rest_port(text))


@pytest.mark.full
async def test_a_server_that_runs_already_is_used_and_not_killed(stage: Stage) -> None:
    process = await _start(
        COUNTERFOIL_EXAMPLE_BASE_URL=stage.system.rest_url, COUNTERFOIL_API_KEY=DEVELOPMENT_KEY
    )
    text = await _text(process)
    assert process.returncode == 0, text
    assert "kill -9" not in text
    assert "Done." in text


@pytest.mark.full
async def test_the_demo_fails_when_nobody_answers() -> None:
    (port,) = free_ports(1)
    process = await _start(COUNTERFOIL_EXAMPLE_BASE_URL=f"http://127.0.0.1:{port}")
    text = await _text(process)
    assert process.returncode == 1
    assert "The demo failed" in text
