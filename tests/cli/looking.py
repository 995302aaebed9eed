"""Commands that look at a running system, as an operator calls them."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from typing import Any

from tests.cli.support import command
from tests.support.chat import Chat
from tests.support.system import System

SECONDS_MAX = 60


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What `-o json` printed."""
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


def environment(system: System, **more: str) -> dict[str, str]:
    """The installation's settings, with the addresses of its services; an empty one is not set."""
    own = {f"COUNTERFOIL_{k.upper()}_ADDRESS": v for k, v in system.addresses.items()}
    own["COUNTERFOIL_SERVICE_KEY_FILE"] = str(system.folder / "service_key")
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = {**system.environment, **own, **path, **more}
    return {name: value for name, value in found.items() if value}


async def begin(chat: Chat, *words: str) -> Process:
    """A command that goes on."""
    return await asyncio.create_subprocess_exec(
        *command(*words), env=environment(chat.system), stdout=PIPE, stderr=PIPE
    )


async def look(system: System, *words: str, **more: str) -> Done:
    """A command that ends by itself."""
    process = await asyncio.create_subprocess_exec(
        *command(*words), env=environment(system, **more), stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(SECONDS_MAX):
        out, err = await process.communicate()
    return Done(process.returncode or 0, out.decode(), err.decode())
