"""The gate loop and the text turn, as clients see them."""

import asyncio
import time
from typing import Any

import anthropic

from bench import chat
from bench.http import Connection, Events
from bench.plan import Plan, Sample
from bench.server import embedded
from bench.stats import percentile
from foundation.settings import DEVELOPMENT_KEY


async def gate(plan: Plan) -> list[Sample]:
    """p50 of one client, and loops per second of many."""
    with embedded() as system:
        place = await chat.Place.make(system.url)
        one = await loops(place, 1, plan.count(300), warm=plan.count(30))
        official = await _official(place, plan.count(60))
        rates: dict[int, float] = {}
        worst: dict[int, float] = {}
        for clients in plan.sweep:
            plan.say(f"{clients} clients")
            await saturated(place, clients, plan.seconds(1.0))
            rates[clients], times = await saturated(place, clients, plan.seconds(8.0))
            worst[clients] = percentile(times, 99)
    best = max(rates, key=lambda clients: rates[clients])
    sweep = "; ".join(
        f"{clients} clients {rate:.1f}/s (p99 {worst[clients] * 1e3:.0f} ms)"
        for clients, rate in rates.items()
    )
    return [
        Sample(
            "gate_p50",
            percentile(one, 50) * 1e3,
            n=len(one),
            note=f"p99 {percentile(one, 99) * 1e3:.1f} ms; with the official Python client p50"
            f" {percentile(official, 50) * 1e3:.1f} ms (n={len(official)})",
            series=[value * 1e3 for value in one],
        ),
        Sample(
            "gate_rate",
            rates[best],
            n=best,
            note=f"n is the number of clients; {sweep}",
            series=list(rates.values()),
        ),
    ]


async def text(plan: Plan) -> list[Sample]:
    """POST to final idle on an open stream."""
    with embedded() as system:
        times = await text_turns(system.url, plan.count(500), plan.count(50))
    milliseconds = [value * 1e3 for value in times]
    return [
        Sample("text_p50", percentile(milliseconds, 50), n=len(times), series=milliseconds),
        Sample("text_p99", percentile(milliseconds, 99), n=len(times), series=milliseconds),
    ]


async def text_turns(url: str, count: int, warm: int, per_session: int = 50) -> list[float]:
    """Seconds of so many turns, a new session after every so many."""
    place = await chat.Place.make(url)
    connection = await Connection.open(url)
    times: list[float] = []
    while len(times) < count + warm:
        session = await place.session(connection)
        events = await Events.open(url, session)
        wanted = min(per_session, count + warm - len(times))
        times += [await chat.text_turn(connection, events, session) for _ in range(wanted)]
        events.close()
    connection.close()
    return times[warm:]


async def loops(place: chat.Place, clients: int, count: int, warm: int = 0) -> list[float]:
    """Seconds of `count` loops of each client."""

    async def client() -> list[float]:
        connection = await Connection.open(place.url)
        times = [await chat.gate_loop(place, connection) for _ in range(count + warm)]
        connection.close()
        return times[warm:]

    found = await asyncio.gather(*(client() for _ in range(clients)))
    return [value for times in found for value in times]


async def saturated(place: chat.Place, clients: int, seconds: float) -> tuple[float, list[float]]:
    """Loops per second of clients that never rest, and each loop's seconds. Loops count by the
    share of them that lies inside the window."""
    began = time.perf_counter()
    ends = began + seconds
    times: list[float] = []
    shares = 0.0

    async def client() -> None:
        nonlocal shares
        connection = await Connection.open(place.url)
        while (now := time.perf_counter()) < ends:
            took = await chat.gate_loop(place, connection)
            times.append(took)
            shares += min((ends - now) / took, 1.0)
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return shares / seconds, times


async def _official(place: chat.Place, count: int) -> list[float]:
    client = anthropic.AsyncAnthropic(
        base_url=place.url, api_key=DEVELOPMENT_KEY, max_retries=0, timeout=60
    )
    events = client.beta.sessions.events
    times: list[float] = []
    async with client:
        for _ in range(count + 5):
            began = time.perf_counter()
            session = await client.beta.sessions.create(
                agent=place.agent, environment_id=place.environment
            )
            async with await events.stream(session.id) as stream:
                first: Any = [chat.message(chat.GATE_TEXT)]
                await events.send(session.id, events=first)
                async for event in stream:
                    if event.type != "session.status_idle":
                        continue
                    if event.stop_reason.type != "requires_action":
                        break
                    answer: Any = [chat.result(event.stop_reason.event_ids[0])]
                    await events.send(session.id, events=answer)
            times.append(time.perf_counter() - began)
    return times[5:]
