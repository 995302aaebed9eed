"""Who dies when: one process of each kind in turn, and PostgreSQL."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import asyncpg
import psutil

from foundation.storage.connect import DRIVER_ERRORS
from tests.support.postgres import SessionPostgres
from tests.support.system import System
from tests.support.waiting import eventually

POSTGRES = "postgres"
VICTIMS = (
    "gateway",
    "ledger",
    "transcript",
    "journal",
    "context",
    "files",
    "tools",
    "registry",
    "runner",
    POSTGRES,
)
"""In this order: the recovery of PostgreSQL takes seconds, in which nobody else would be busy."""

_FIRST, _LAST = 0.1, 0.6
"""Shares of the run between which they die; the calm before and behind shows memory."""

_DOWN_SECONDS = 0.5
_BACK_SECONDS_MAX = 60.0


async def deaths(
    system: System, postgres: SessionPostgres, seconds: float, say: Callable[[str], None]
) -> None:
    """Kills each, and starts it again."""
    began = time.monotonic()
    for number, name in enumerate(VICTIMS):
        share = _FIRST + (_LAST - _FIRST) * number / len(VICTIMS)
        await asyncio.sleep(max(began + share * seconds - time.monotonic(), 0))
        at = time.monotonic()
        if name == POSTGRES:
            await _restart(postgres)
        else:
            await system.kill(name)
            await asyncio.sleep(_DOWN_SECONDS)
            await system.start()
        say(f"{name} was killed and is back after {time.monotonic() - at:.1f} s")


async def _restart(postgres: SessionPostgres) -> None:
    """The harshest restart: PostgreSQL says goodbye to nobody and recovers from its log."""
    before = postgres.server.pid
    assert before is not None
    os.kill(before, signal.SIGQUIT)

    async def back() -> bool:
        if postgres.server.pid == before:
            return False
        with suppress(*DRIVER_ERRORS):
            await (await asyncpg.connect(postgres.dsn, timeout=5)).close()
            return True
        return False

    await eventually(back, _BACK_SECONDS_MAX)


@dataclass
class Memory:
    """Resident sizes of every process that lived, by its role and pid."""

    sizes: dict[tuple[str, int], list[int]] = field(
        default_factory=dict[tuple[str, int], list[int]]
    )

    async def watch(self, system: System, every: float) -> None:
        """Samples until cancelled."""
        while True:
            for role in system.roles:
                pid = system.pid(role.name)
                with suppress(psutil.Error):
                    size = int(psutil.Process(pid).memory_info().rss)
                    if size:  # nothing is resident of a process that waits to be buried
                        self.sizes.setdefault((role.name, pid), []).append(size)
            await asyncio.sleep(every)
