"""Failpoints: named places where a process dies, pauses or fails, and nothing otherwise."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from foundation import failpoints
from tests.support.processes import python_environment

HITS = """
import asyncio
from foundation import failpoints

async def main():
    for number in range(3):
        print("at", number, flush=True)
        await failpoints.hit("here")
    print("end", flush=True)

asyncio.run(main())
"""


def run_hits(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HITS],
        env=python_environment(**environment),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_kill_happens_at_the_hit_that_is_named(tmp_path: Path) -> None:
    record = tmp_path / "hits"
    done = run_hits(
        COUNTERFOIL_FAILPOINTS="other=kill, here=kill@2",
        COUNTERFOIL_FAILPOINTS_RECORD=str(record),
    )
    assert done.returncode == -9
    assert done.stdout.split("\n") == ["at 0", "at 1", ""]
    assert record.read_text() == "here\nhere\n"


def test_nothing_happens_without_configuration() -> None:
    done = run_hits()
    assert (done.returncode, done.stdout.split("\n")[-2]) == (0, "end")


def test_killall_kills_the_trees_of_the_pid_files_too(tmp_path: Path) -> None:
    tree = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True
    )
    assert tree.stdout is not None
    grandchild = int(tree.stdout.readline())
    pid_file = tmp_path / "postmaster.pid"
    pid_file.write_text(f"{tree.pid}\n/some/folder\n")
    done = run_hits(
        COUNTERFOIL_FAILPOINTS="here=killall",
        COUNTERFOIL_FAILPOINTS_PIDS=f"{tmp_path / 'missing'}{os.pathsep}{pid_file}",
    )
    assert done.returncode == -9
    assert tree.wait(10) == -9
    assert tree.stdout.read() == ""  # the last holder of the pipe is gone, so is the grandchild
    tree.stdout.close()
    assert not Path(f"/proc/{grandchild}/exe").exists()


@pytest.mark.parametrize("text", ["here", "here=stop", "=kill", "here=kill@x"])
def test_a_setting_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="COUNTERFOIL_FAILPOINTS"):
        failpoints.parse(text)


async def test_a_hook_may_pause_and_raise() -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hook(name: str) -> None:
        if name == "pause":
            reached.set()
            await go_on.wait()
        else:
            raise RuntimeError(name)

    failpoints.install(hook)
    paused = asyncio.create_task(failpoints.hit("pause"))
    await reached.wait()
    assert not paused.done()
    go_on.set()
    await paused
    with pytest.raises(RuntimeError, match="fail"):
        await failpoints.hit("fail")
    failpoints.install(None)
    await failpoints.hit("fail")
