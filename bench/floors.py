"""What the parts alone can do in the same run: PostgreSQL, gRPC, HTTP, SSE, hashing."""

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import grpc
import psutil
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from bench.bare import BARE_READY
from bench.http import SECONDS_MAX, Connection
from bench.plan import Plan
from bench.server import READY_SECONDS_MAX, Server, folder, free_ports, many_files
from bench.stats import median
from foundation.postgres import EmbeddedPostgres
from foundation.rpc.admission import Admission, Principal
from foundation.rpc.host import Host

_SERVICE_KEY = "x" * 40
_ROW = os.urandom(600)
_TABLE = """
CREATE TABLE floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, lane int, body bytea)
"""
_INSERT = "INSERT INTO floor (lane, body) VALUES ($1, $2)"
_BATCH = "INSERT INTO floor (lane, body) SELECT $1, unnest($2::bytea[])"
_READ = "SELECT id, body FROM floor WHERE lane = -1 ORDER BY id"
_READ_5MB = "SELECT id, body FROM floor WHERE lane = -2 ORDER BY id"
SETTINGS = ("fsync", "full_page_writes", "synchronous_commit", "wal_sync_method", "shared_buffers")
"""Settings of the server that the report shows."""


async def measure(plan: Plan) -> tuple[dict[str, float], dict[str, str]]:
    """All floors, and PostgreSQL's version and settings."""
    with folder() as place:
        server = EmbeddedPostgres()
        dsn = await server.start(place / "postgres")
        try:
            plan.say("floors: PostgreSQL")
            found = await _postgres(dsn, plan)
            settings = await _settings(dsn)
        finally:
            await server.stop()
    plan.say("floors: gRPC")
    found |= await _grpc(plan)
    plan.say("floors: HTTP and SSE")
    found |= await _http(plan)
    found["sha_5mb"] = _sha()
    return found, settings


async def _settings(dsn: str) -> dict[str, str]:
    connection = await asyncpg.connect(dsn)
    try:
        found = {"version": str(await connection.fetchval("SHOW server_version"))}
        for name in SETTINGS:
            found[name] = str(await connection.fetchval("SELECT current_setting($1)", name))
        return found
    finally:
        await connection.close()


async def _postgres(dsn: str, plan: Plan) -> dict[str, float]:
    async with asyncpg.create_pool(dsn, min_size=32, max_size=32) as pool:
        await pool.execute(_TABLE)

        async def rate(callers: int, work: Callable[[int], Awaitable[object]]) -> float:
            await _rate(callers, plan.seconds(0.5), work)
            return await _rate(callers, plan.seconds(3), work)

        async def single() -> object:
            return await pool.execute(_INSERT, 1, _ROW)

        inserts = await _times(single, plan.count(1000))
        commits = await rate(32, lambda caller: pool.execute(_INSERT, caller, _ROW))
        batch = [_ROW] * 20
        batches = await rate(8, lambda caller: pool.execute(_BATCH, caller, batch))
        await pool.execute(_BATCH, -1, [_ROW] * 10_000)
        await pool.execute(_BATCH, -2, [os.urandom(2_500) for _ in range(2_000)])
        read = await _times(lambda: pool.fetch(_READ), plan.count(20))
        read_5mb = await _times(lambda: pool.fetch(_READ_5MB), plan.count(20))
    return {
        "insert": median(inserts) * 1e3,
        "commits": commits,
        "events": batches * 20,
        "read": 10_000 / median(read),
        "read_5mb": median(read_5mb) * 1e3,
    }


async def _nobody(key: str) -> Principal | None:
    return None


async def _grpc(plan: Plan) -> dict[str, float]:
    request = health_pb2.HealthCheckRequest()
    host = Host(Admission(_SERVICE_KEY, _nobody))
    host.register(health_pb2_grpc.add_HealthServicer_to_server, health.aio.HealthServicer())
    local: Any = health_pb2_grpc.HealthStub(host.channel(_SERVICE_KEY))
    inside = await _times(lambda: local.Check(request), plan.count(5000))
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)

            async def call(_: int = 0) -> object:
                return await stub.Check(request)

            single = await _times(call, plan.count(1000))
            rate = await _rate(64, plan.seconds(3), call)
    finally:
        await server.stop(None)
    return {
        "grpc_local": median(inside) * 1e3,
        "grpc_socket": median(single) * 1e3,
        "grpc_rate": rate,
    }


async def _http(plan: Plan) -> dict[str, float]:
    many_files()
    with folder() as place:
        (port,) = free_ports(1)
        url = f"http://127.0.0.1:{port}"
        server = Server("bare", place, ("-m", "bench.bare", str(port)), {})
        server.start()
        try:
            await asyncio.wait_for(asyncio.to_thread(server.ready, BARE_READY), READY_SECONDS_MAX)
            one = await Connection.open(url)
            single = await _times(lambda: one.request("POST", "/", b"{}"), plan.count(1000))
            many = [await Connection.open(url) for _ in range(32)]
            rate = await _rate(
                32, plan.seconds(3), lambda caller: many[caller].request("POST", "/", b"{}")
            )
            memory = await _memory(url, server.pid, plan.count(1000))
            sse = await _deliveries(url, one, plan.seconds(3))
        finally:
            server.stop()
    return {
        "asgi": median(single) * 1e3,
        "asgi_rate": rate,
        "sse_rate": sse,
        "sse_memory": memory,
    }


async def _memory(url: str, pid: int, streams: int) -> float:
    before = resident(pid)
    opened = [await _listen(url, lambda _: None) for _ in range(streams)]
    after = resident(pid)
    for one in opened:
        one.close()
    await asyncio.sleep(0.5)
    return max((after - before) / streams / 1000, 0.001)


async def _deliveries(url: str, control: Connection, seconds: float) -> float:
    events = wanted = 0
    enough = asyncio.Event()

    def came(data: bytes) -> None:
        nonlocal events
        events += data.count(b"event: bench")
        if events >= wanted:
            enough.set()

    opened = [await _listen(url, came) for _ in range(100)]
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        wanted = events + 100 * 20
        enough.clear()
        await control.request("POST", "/publish", b"20")
        async with asyncio.timeout(SECONDS_MAX):
            await enough.wait()
    rate = events / (time.perf_counter() - began)
    for one in opened:
        one.close()
    return rate


async def _listen(url: str, came: Callable[[bytes], None]) -> Connection:
    connection = await Connection.open(url, came)
    await connection.request("GET", "/stream")
    return connection


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    return int(psutil.Process(pid).memory_info().rss)


def _sha() -> float:
    data = os.urandom(5_000_000)
    times: list[float] = []
    for _ in range(20):
        began = time.perf_counter()
        hashlib.sha256(data).digest()
        times.append(time.perf_counter() - began)
    return median(times) * 1e3


async def _times(work: Callable[[], Awaitable[object]], count: int) -> list[float]:
    """Seconds of each of so many calls in a row, after a tenth of them as a warm-up."""
    times: list[float] = []
    warm = max(count // 10, 1)
    for _ in range(count + warm):
        began = time.perf_counter()
        await work()
        times.append(time.perf_counter() - began)
    return times[warm:]


async def _rate(callers: int, seconds: float, work: Callable[[int], Awaitable[object]]) -> float:
    """Calls per second of callers that never rest."""
    began = time.perf_counter()
    done = 0

    async def caller(number: int) -> None:
        nonlocal done
        while time.perf_counter() - began < seconds:
            await work(number)
            done += 1

    await asyncio.gather(*(caller(number) for number in range(callers)))
    return done / (time.perf_counter() - began)


__all__ = ["SETTINGS", "measure", "resident"]
