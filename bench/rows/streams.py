"""Open streams: delivery, memory, reconnection."""

import asyncio
import struct
import time
from pathlib import Path

from bench import chat
from bench.floors import resident
from bench.http import Connection, Events
from bench.plan import Plan, Sample
from bench.server import embedded, folder, many_files
from bench.stats import median, percentile

_STREAMS = 100
_MESSAGE = b"event: user.message"


async def fanout(plan: Plan) -> list[Sample]:
    """From the end of a commit to the byte at each of 100 clients of one session."""
    with folder() as place:
        commits = place / "commits"
        with embedded("-m", "bench.timed", str(commits)) as system:
            agent = await chat.Place.make(system.url)
            connection = await Connection.open(system.url)
            session = await chat.waiting_session(agent, connection)
            arrivals = [_Arrivals() for _ in range(_STREAMS)]
            opened = [await one.listen(system.url, session) for one in arrivals]
            warm = plan.count(20)
            for _ in range(warm + plan.count(200)):
                await chat.send(connection, session, chat.message("x" * 300))
                async with asyncio.timeout(30):
                    await asyncio.gather(*(one.next() for one in arrivals))
            for one in (*opened, connection):
                one.close()
        delays = _delays(_committed(commits), arrivals, warm)
    note = (
        "the commit is timed inside the server, the byte in the client process, both with the"
        f" machine's monotonic clock; {_STREAMS} streams of one session, one message at a time"
    )
    return [
        Sample("fanout_p50", percentile(delays, 50), n=len(delays), note=note, series=delays),
        Sample("fanout_p99", percentile(delays, 99), n=len(delays), note=note),
    ]


class _Arrivals:
    """When the messages came on one stream."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._came = asyncio.Event()

    async def listen(self, url: str, session: str) -> Connection:
        connection = await Connection.open(url, self._chunk)
        await connection.request("GET", f"/v1/sessions/{session}/events/stream")
        return connection

    async def next(self) -> None:
        await self._came.wait()
        self._came.clear()

    def _chunk(self, data: bytes) -> None:
        if _MESSAGE in data:
            self.times.append(time.monotonic())
            self._came.set()


def _committed(path: Path) -> list[float]:
    return [one[0] for one in struct.iter_unpack("d", path.read_bytes())]


def _delays(commits: list[float], arrivals: list[_Arrivals], warm: int) -> list[float]:
    """Milliseconds. Nothing else writes meanwhile, so a message's commit is the last one that
    ended before its first byte arrived anywhere."""
    delays: list[float] = []
    for times in list(zip(*(one.times for one in arrivals), strict=True))[warm:]:
        first = min(times)
        committed = max(one for one in commits if one <= first)
        delays += [(arrived - committed) * 1e3 for arrived in times]
    return delays


async def memory(plan: Plan) -> list[Sample]:
    """Resident memory of the server before and after 1,000 streams, each of its own session.

    As many are open already: those live in memory that the server had reserved.
    """
    many_files()
    streams = plan.count(1000)
    with embedded() as system:
        agent = await chat.Place.make(system.url)
        connection = await Connection.open(system.url)
        await chat.gate_loop(agent, connection)
        sessions = [await agent.session(connection) for _ in range(2 * streams)]
        opened = [await Events.open(system.url, session) for session in sessions[:streams]]
        await asyncio.sleep(1)
        before = resident(system.server.pid)
        opened += [await Events.open(system.url, session) for session in sessions[streams:]]
        await asyncio.sleep(1)
        after = resident(system.server.pid)
        for one in (*opened, connection):
            one.close()
    return [
        Sample(
            "stream_memory",
            (after - before) / streams / 1000,
            n=streams,
            note=f"resident memory of the server {before / 1e6:.0f} MB with {streams:,} streams,"
            f" {after / 1e6:.0f} MB with {2 * streams:,}",
        )
    ]


async def reconnect(plan: Plan) -> list[Sample]:
    """All events of a session behind `Last-Event-ID`, until the last one has arrived."""
    total = max(plan.count(10_000), 1000)
    with embedded() as system:
        agent = await chat.Place.make(system.url)
        connection = await Connection.open(system.url)
        session = await chat.waiting_session(agent, connection)
        for start in range(0, total, 500):
            batch = [chat.message("x" * 300)] * min(500, total - start)
            await chat.send(connection, session, *batch)
        found = {
            share: [await _replayed(system.url, session, total, share) for _ in range(repeats)]
            for share, repeats in ((0.0, plan.count(15)), (0.5, plan.count(7)), (0.99, 5))
        }
        listed = await _listed(connection, session)
        connection.close()
    whole = [value * 1e3 for value in found[0.0]]
    return [
        Sample(
            "reconnect",
            median(whole),
            n=len(whole),
            note=f"p50 of replays of all {total:,} events of 300 characters; of the last half"
            f" {median(found[0.5]) * 1e3:.0f} ms, of the last hundredth"
            f" {median(found[0.99]) * 1e3:.1f} ms; the same history by GET in pages of 1,000"
            f" {listed * 1e3:.0f} ms",
            series=whole,
        )
    ]


async def _replayed(url: str, session: str, total: int, share: float) -> float:
    behind = int(total * share)
    wanted = total - behind
    seen = 0
    done = asyncio.Event()

    def chunk(data: bytes) -> None:
        nonlocal seen
        seen += data.count(b"event: ")
        if seen >= wanted:
            done.set()

    began = time.perf_counter()
    connection = await Connection.open(url, chunk)
    path = f"/v1/sessions/{session}/events/stream"
    await connection.request("GET", path, headers=f"last-event-id: {session}:{behind}\r\n")
    async with asyncio.timeout(60):
        await done.wait()
    took = time.perf_counter() - began
    connection.close()
    return took


async def _listed(connection: Connection, session: str) -> float:
    began = time.perf_counter()
    page = ""
    while True:
        more = f"&page={page}" if page else ""
        found = await connection.get(f"/v1/sessions/{session}/events?limit=1000{more}")
        page = found.get("next_page") or ""
        if not page:
            return time.perf_counter() - began
