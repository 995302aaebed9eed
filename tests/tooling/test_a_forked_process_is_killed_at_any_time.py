"""A process is killed cleanly, however far whoever waits for its start has come."""

import asyncio
import os
import signal
import subprocess
from typing import cast

import pytest

from tests.support.zygote import Forked, Zygote


class _Parent:
    """Waits for a child that it did not fork from itself."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        self._child = child

    def wait(self, pid: int) -> int:
        assert pid == self._child.pid
        return self._child.wait(20)


def _sleeper() -> Forked:
    reading, writing = os.pipe()
    child = subprocess.Popen(["sleep", "60"], pass_fds=[writing])
    os.close(writing)
    return Forked(cast(Zygote, _Parent(child)), "sleeper", child.pid, reading)


@pytest.mark.parametrize("steps", range(4))
async def test_a_cancelled_wait_for_its_start_does_not_keep_it_from_its_end(steps: int) -> None:
    forked = _sleeper()
    waiting = asyncio.create_task(forked.ready())
    for _ in range(steps):
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await forked.kill()
    assert forked.code == -signal.SIGKILL
