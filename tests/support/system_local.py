"""An embedded system inside the test's own process, whose commits can be held open.

For races that need one side to wait exactly between two commits; everything else is proved on real
processes (`tests.support.system`).
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from unittest import mock

from cli.embedded import running
from foundation import failpoints
from foundation.settings import Settings
from tests.support.model import Model
from tests.support.postgres import SessionPostgres
from tests.support.system import System, system_of
from tests.support.zygote import Zygote


@dataclass
class Pause:
    """A hit that waits."""

    _came: asyncio.Event = field(default_factory=asyncio.Event)
    _goes: asyncio.Event = field(default_factory=asyncio.Event)

    async def reached(self) -> None:
        """Returns when somebody waits here."""
        async with asyncio.timeout(20):
            await self._came.wait()

    def go(self) -> None:
        """Lets whoever waits here go on."""
        self._goes.set()

    async def stop(self) -> None:
        """Called at the hit."""
        self._came.set()
        await self._goes.wait()


@dataclass
class Pauses:
    """Failpoints that hold whoever hits them."""

    _wanted: dict[tuple[str, int], Pause] = field(default_factory=dict[tuple[str, int], Pause])
    _hits: Counter[str] = field(default_factory=Counter[str])

    def at(self, name: str, hit: int = 1) -> Pause:
        """A pause at the `hit`-th time from now that `name` is reached."""
        pause = self._wanted[name, self._hits[name] + hit] = Pause()
        return pause

    async def hit(self, name: str) -> None:
        """The hook of `foundation.failpoints`."""
        self._hits[name] += 1
        pause = self._wanted.get((name, self._hits[name]))
        if pause is not None:
            await pause.stop()

    def release(self) -> None:
        """Lets everybody go."""
        for pause in self._wanted.values():
            pause.go()


@asynccontextmanager
async def local_system(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> AsyncGenerator[tuple[System, Pauses]]:
    """A running system of this process, and the pauses of its commits."""
    async with system_of("embedded", zygote, model, postgres) as system:
        (role,) = system.roles
        pauses = Pauses()
        with _environment({**system.environment, **role.environment}):
            async with running(Settings.model_validate({})):
                failpoints.install(pauses.hit)
                system.up.set()
                try:
                    yield system, pauses
                finally:
                    pauses.release()
                    failpoints.install(None)


@contextmanager
def _environment(settings: dict[str, str]) -> Generator[None]:
    with mock.patch.dict(os.environ, settings):
        yield
