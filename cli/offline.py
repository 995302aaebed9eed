"""Runs the offline model beside an embedded deployment: its own process, behind a socket."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from typing import Self

_READY_SECONDS = 20.0
_READY_WORD = "listening "


class OfflineModel:
    """A running offline model; ends with this process, however it ends."""

    def __init__(self, process: Process, url: str) -> None:
        self._process = process
        self.url = url

    @classmethod
    async def start(cls, *, record_dir: str = "") -> Self:
        """Starts it on a free port. Raises RuntimeError when it does not get ready."""
        arguments = ["-m", "offline_model", "--port", "0", "--parent-death"]
        if record_dir:
            arguments += ["--record", record_dir]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=PIPE, start_new_session=True
        )
        assert process.stdout is not None
        async with asyncio.timeout(_READY_SECONDS):
            line = (await process.stdout.readline()).decode().strip()
        if not line.startswith(_READY_WORD):
            process.kill()
            raise RuntimeError(f"the offline model said {line!r} instead of where it listens")
        return cls(process, line.removeprefix(_READY_WORD))

    async def stop(self) -> None:
        """Ends it."""
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()
