"""The first program that users read does what it teaches."""

import asyncio
import json
import os
import pty
import sys
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import pytest

from tests.examples.stage import (
    DYING,
    PROMPT,
    REPO,
    SECONDS_MAX,
    Stage,
    read_to_end,
    read_until,
)

KEEP = "COUNTERFOIL_EXAMPLE_KEEP_RESOURCES"
REQUESTS_TO_THE_END = 11
"""Environment, agent, session; stream, list; receipts, two results; three removals."""


async def test_it_gates_two_receipts_and_removes_its_traces(stage: Stage) -> None:
    kept = await stage.run(typed="maybe\nREJECT\n", **{KEEP: "1"})
    assert kept.code == 0, kept.text
    assert kept.prompts == 2
    assert "Please type approve or reject." in kept.text
    assert "Receipt r02: Rejected (after human review)" in kept.text
    resources = stage.resources()
    await stage.check_history(resources["session"])
    assert stage.decisions()["r02"] == {
        "recorded": True,
        "receipt_id": "r02",
        "human_decision": "reject",
    }
    removing = await stage.run()
    assert removing.code == 0, removing.text
    assert removing.prompts == 0
    await stage.check_removed(resources)
    assert stage.resources() == {}
    assert set(stage.decisions()) == {"r01", "r02"}


async def test_without_a_human_everything_is_kept_for_later(stage: Stage) -> None:
    alone = await stage.run("examples/hitl_gate/main.py")
    assert alone.code == 0, alone.text
    assert "start again to continue" in alone.text
    session_id = stage.resources()["session"]
    assert set(stage.decisions()) == {"r01"}
    later = await stage.run(typed="approve\n", **{KEEP: "1"})
    assert later.code == 0, later.text
    assert f"Continuing session {session_id}" in later.text
    assert later.prompts == 1
    await stage.check_history(session_id, "approve")


async def test_a_human_at_a_terminal_is_asked(stage: Stage) -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "examples.hitl_gate", "--state", str(stage.state)),
        env=stage.environment(TERM="dumb", **{KEEP: "1"}),
        cwd=REPO,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        text = await _terminal_until(ours, PROMPT)
        os.write(ours, b"reject\n")
        async with asyncio.timeout(SECONDS_MAX):
            assert await process.wait() == 0, text
    finally:
        await _end(process)
        os.close(ours)
    await stage.check_history(stage.resources()["session"])


async def _terminal_until(terminal: int, marker: str) -> str:
    text = ""
    async with asyncio.timeout(SECONDS_MAX):
        while marker not in text:
            text += (await asyncio.to_thread(os.read, terminal, 4096)).decode()
    return text


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


async def test_it_keeps_no_model_credentials(stage: Stage, tmp_path: Path) -> None:
    secrets = {
        "ANTHROPIC_API_KEY": "secret-1",
        "ANTHROPIC_AUTH_TOKEN": "secret-2",
        "ANTHROPIC_CUSTOM_HEADERS": "x-leak: secret-3",
        "COUNTERFOIL_MODEL_API_KEY": "secret-4",
        "COUNTERFOIL_MODEL_BASE_URL": "http://secret-5",
    }
    notes = tmp_path / "notes.json"
    run = await stage.run(*DYING, typed="reject\n", NOTES=str(notes), **secrets)
    assert run.code == 0, run.text
    seen = json.loads(notes.read_text())
    assert not secrets.keys() & seen["environment"].keys()
    assert "secret-" not in notes.read_text()
    assert seen["headers"]["authorization"] == "Bearer cf-local-development"


async def test_the_server_may_die_while_the_human_thinks(stage: Stage) -> None:
    process = await stage.start(**{KEEP: "1"})
    try:
        await read_until(process, PROMPT)
        await stage.system.kill()
        await stage.system.start()
        run = await read_to_end(process, "reject\n")
    finally:
        await _end(process)
    assert run.code == 0, run.text
    await stage.check_history(stage.resources()["session"])


async def test_two_copies_give_one_answer(stage: Stage) -> None:
    first = await stage.start(**{KEEP: "1"})
    try:
        await read_until(first, PROMPT)
        second = await stage.start(**{KEEP: "1"})
        try:
            await read_until(second, PROMPT)
            one = await read_to_end(first, "reject\n")
            two = await read_to_end(second, "approve\n")
        finally:
            await _end(second)
    finally:
        await _end(first)
    assert (one.code, two.code) == (0, 0), one.text + two.text
    await stage.check_history(stage.resources()["session"], "reject")


QUICK = {"before 8", "after 8"}
MOMENTS = [f"{when} {n + 1}" for n in range(REQUESTS_TO_THE_END) for when in ("before", "after")]


def _cost(moment: str) -> Any:
    return pytest.param(moment, marks=() if moment in QUICK else pytest.mark.full)


@pytest.mark.parametrize("moment", [_cost(moment) for moment in MOMENTS])
async def test_killed_at_any_request_it_submits_only_what_is_missing(
    stage: Stage, moment: str
) -> None:
    removal = int(moment.split()[1]) > REQUESTS_TO_THE_END - 3
    killed = await stage.run(*DYING, typed="reject\n", DIES_AT=moment)
    assert killed.code == -9, killed.text
    resources = stage.resources()
    if removal:
        again = await stage.run()
        assert again.code == 0, again.text
        await stage.check_removed(resources)
        assert stage.resources() == {}
        return
    again = await stage.run(typed="reject\n", **{KEEP: "1"})
    assert again.code == 0, again.text
    assert killed.prompts + again.prompts == 1
    assert set(stage.decisions()) == {"r01", "r02"}
    resources = stage.resources()
    await stage.check_history(resources["session"])
    assert (await stage.run()).code == 0
    await stage.check_removed(resources)
