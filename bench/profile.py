"""`python -m bench.profile`: flame graphs of the server in the gate loop and in text turns.

py-spy is installed into a cache folder the first time. Writes `bench/profiles/<row>.svg`.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import uvloop

from bench import chat
from bench.plan import Plan
from bench.rows import sessions
from bench.server import embedded

_VERSION = "0.4.2"
_SECONDS = 15
_OUT = Path(__file__).resolve().parent / "profiles"


async def main() -> None:
    """Profiles both."""
    plan = Plan()
    program = await _installed()
    _OUT.mkdir(exist_ok=True)
    for row in ("gate", "text"):
        plan.say(f"profiling {row} for {_SECONDS} s")
        with embedded() as system:
            place = await chat.Place.make(system.url)
            await sessions.saturated(place, 8, 2)
            output = _OUT / f"{row}.svg"
            options = ("--rate", "200", "--nonblocking", "--output", str(output))
            profiler = await asyncio.create_subprocess_exec(
                str(program), "record", *options, "--pid", str(system.server.pid)
            )
            if row == "gate":
                await sessions.saturated(place, 8, _SECONDS)
            else:
                await _turns(system.url)
            profiler.send_signal(signal.SIGINT)
            await profiler.wait()
            output.write_text(without_places(output.read_text()))


def without_places(graph: str) -> str:
    """A graph that does not say where the project and Python are installed."""
    for place in (str(_OUT.parents[1]), *sys.path, sys.prefix, sys.base_prefix):
        if len(place) > 1:
            graph = graph.replace(f"{place}/", "")
    return graph


async def _turns(url: str) -> None:
    loop = asyncio.get_running_loop()
    ends = loop.time() + _SECONDS
    while loop.time() < ends:
        await sessions.text_turns(url, 50, 0)


async def _installed() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    target = Path(base) / "counterfoil-bench" / f"py-spy-{_VERSION}"
    program = target / "bin" / "py-spy"
    if not program.exists():
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)),
            f"py-spy=={_VERSION}",
        )
        if await process.wait():
            raise SystemExit("py-spy could not be installed")
    return program


if __name__ == "__main__":
    uvloop.run(main())
