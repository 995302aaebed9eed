"""The same loop on Restate: its engine alone, a handler without ledger, transcript or API.

Server (npm) and SDK (PyPI) are installed into a cache folder the first time; without network or
npm the row says so.
"""

import asyncio
import os
import shutil
import sys
import time
import uuid
from pathlib import Path

from bench.http import BadAnswer, Connection
from bench.plan import NotMeasured, Plan, Sample
from bench.server import Server, ServerFailed, folder, free_ports
from bench.stats import percentile

_SERVER, _SDK, _HTTP = "1.7.12", "1.3.0", "0.18.0"
_INSTALL_SECONDS_MAX = 240
_SERVICE = """
import asyncio, sys
import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

gate = restate.Workflow("Gate")

@gate.main()
async def run(ctx: restate.WorkflowContext, text: str) -> str:
    await ctx.run_typed("model 1", lambda: "calls the tool")
    await ctx.promise("asked").resolve("decide")
    answer = await ctx.promise("answer").value()
    return await ctx.run_typed("model 2", lambda: f"done: {answer}")

@gate.handler()
async def asked(ctx: restate.WorkflowSharedContext) -> str:
    return await ctx.promise("asked").value()

@gate.handler()
async def answer(ctx: restate.WorkflowSharedContext, text: str) -> None:
    await ctx.promise("answer").resolve(text)

config = Config()
config.bind = [f"127.0.0.1:{sys.argv[1]}"]
config.accesslog = config.errorlog = None
print("handler listens", flush=True)
asyncio.run(serve(restate.app([gate]), config))
"""


async def peer(plan: Plan) -> list[Sample]:
    """p50 of one client, and loops per second of 32."""
    cache = await _installed(plan)
    with folder() as place:
        handler_port, ingress, admin, node = free_ports(4)
        (place / "handler.py").write_text(_SERVICE)
        handler = Server(
            "handler",
            place,
            (str(place / "handler.py"), str(handler_port)),
            {"PYTHONPATH": str(cache / "python")},
        )
        engine = Server(
            "restate",
            place,
            (str(_binary(cache)), "--base-dir", str(place / "data"), "--no-logo"),
            {
                "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
                "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
                "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
                "RESTATE_DISABLE_TELEMETRY": "true",
            },
            program="",
        )
        try:
            for server in (handler, engine):
                server.start()
            await asyncio.to_thread(handler.ready, "handler listens")
            await asyncio.to_thread(engine.ready, "", f"http://127.0.0.1:{admin}/health")
            await _register(f"http://127.0.0.1:{admin}", handler_port)
            url = f"http://127.0.0.1:{ingress}"
            one = await _loops(url, plan.count(200), plan.count(20))
            rate, times = await _saturated(url, 32, plan.seconds(8))
        except ServerFailed as error:
            raise NotMeasured(f"Restate did not start: {str(error)[:300]}") from error
        finally:
            engine.kill_all()
            handler.kill_all()
    note = f"restate-server {_SERVER}, restate-sdk {_SDK}, its own storage with its defaults"
    return [
        Sample("peer_p50", percentile(one, 50) * 1e3, n=len(one), note=note),
        Sample(
            "peer_rate",
            rate,
            n=32,
            note=f"n is the number of clients; p99 {percentile(times, 99) * 1e3:.0f} ms",
        ),
    ]


async def _installed(plan: Plan) -> Path:
    """The folder that holds both, filled the first time. Raises NotMeasured."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(base) / "counterfoil-bench" / f"restate-{_SERVER}-{_SDK}"
    if _binary(cache).exists() and (cache / "python" / "restate").exists():
        return cache
    npm = shutil.which("npm")
    if npm is None:
        raise NotMeasured("Restate's server comes from npm, which is not installed")
    plan.say("installing Restate (225 MB, once)")
    cache.mkdir(parents=True, exist_ok=True)
    package = f"@restatedev/restate-server@{_SERVER}"
    await _run(npm, "install", "--no-audit", "--no-fund", "--prefix", str(cache), package)
    target = ("--target", str(cache / "python"))
    wanted = (f"restate-sdk=={_SDK}", f"hypercorn=={_HTTP}")
    await _run(sys.executable, "-m", "pip", "install", "--quiet", *target, *wanted)
    return cache


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(_INSTALL_SECONDS_MAX):
            out, _ = await process.communicate()
    except TimeoutError as error:
        process.kill()
        raise NotMeasured(f"installing Restate took over {_INSTALL_SECONDS_MAX} s") from error
    if process.returncode:
        raise NotMeasured(f"Restate could not be installed: {out[-300:].decode()}")


def _binary(cache: Path) -> Path:
    machine = "arm64" if os.uname().machine == "aarch64" else "x64"
    package = f"restate-server-linux-{machine}"
    return cache / "node_modules" / "@restatedev" / package / "bin" / "restate-server"


async def _register(admin: str, port: int) -> None:
    connection = await Connection.open(admin)
    body = {"uri": f"http://127.0.0.1:{port}"}
    for pause in (0.2, 0.5, 1.0, 2.0):
        try:
            await connection.post("/deployments", body)
            break
        except BadAnswer:
            await asyncio.sleep(pause)
    else:
        await connection.post("/deployments", body)
    connection.close()


async def _loop(connection: Connection) -> float:
    began = time.perf_counter()
    key = uuid.uuid4().hex
    await connection.post(f"/Gate/{key}/run/send", "How are you?")
    await connection.request("POST", f"/Gate/{key}/asked", json=False)
    await connection.request("POST", f"/Gate/{key}/answer", b'"approved"')
    await connection.request("GET", f"/restate/workflow/Gate/{key}/attach", json=False)
    return time.perf_counter() - began


async def _loops(url: str, count: int, warm: int) -> list[float]:
    connection = await Connection.open(url)
    times = [await _loop(connection) for _ in range(count + warm)]
    connection.close()
    return times[warm:]


async def _saturated(url: str, clients: int, seconds: float) -> tuple[float, list[float]]:
    began = time.perf_counter()
    times: list[float] = []

    async def client() -> None:
        connection = await Connection.open(url)
        while time.perf_counter() - began < seconds:
            times.append(await _loop(connection))
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return len(times) / (time.perf_counter() - began), times
