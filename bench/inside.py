"""An embedded system inside a measuring process, for figures that no client can see.

`measured` starts a process that is told a row's function, the scale and a folder, and prints the
samples as JSON on its last line; as many times on one folder as there are phases.
"""

import asyncio
import importlib
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import uvloop

from bench.plan import Plan, Sample
from bench.server import ServerFailed, clean_environment
from cli import huge_pages, logs, memory
from cli.embedded import Embedded, running
from foundation.settings import Settings

_MARK = b"bench samples: "
_START = """
from cli import huge_pages
huge_pages.reserve(huge_pages.SERVER_MIB)
from bench.inside import main
main()
"""
_SECONDS_MAX = 900


async def measured(
    plan: Plan, work: str, folder: Path, environment: dict[str, str] | None = None
) -> list[Sample]:
    """Runs `bench.rows.<module>:<function>` inside; its samples. Raises ServerFailed."""
    arguments = ("-c", _START, work, str(plan.scale), str(folder))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        env={**clean_environment(), **(environment or {})},
    )
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    last = out.strip().rpartition(b"\n")[2]
    if not last.startswith(_MARK):
        raise ServerFailed(f"{work} ended with {process.returncode}\n{out[-2000:].decode()}")
    return msgspec.json.decode(last.removeprefix(_MARK), type=list[Sample])


@asynccontextmanager
async def system(folder: Path) -> AsyncGenerator[Embedded]:
    """Everything of `counterfoil run` in this process; a model other than the offline one comes
    from the environment."""
    settings = Settings.model_validate({"data_dir": folder / "data", "port": 0, "grpc_port": 0})
    async with running(settings) as embedded:
        memory.settle()
        huge_pages.move()
        yield embedded


def main() -> None:
    """Runs the work that the arguments name."""
    work, scale, folder = sys.argv[1:]
    module, _, function = work.partition(":")
    logs.configure("warning")
    found = getattr(importlib.import_module(f"bench.rows.{module}"), function)
    samples = uvloop.run(found(Plan(float(scale)), Path(folder)))
    os.write(1, _MARK + msgspec.json.encode(samples) + b"\n")


__all__ = ["measured", "system"]
