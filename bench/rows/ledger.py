"""Appends through the ledger: in process, because a socket's gRPC call alone costs more."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from counterfoil.ledger.v1 import (
    client_events_pb2,
    content_pb2,
    session_pb2,
    session_pb2_grpc,
)

from bench import chat, inside
from bench.http import Connection
from bench.plan import Plan, Sample
from bench.server import folder
from bench.stats import percentile
from foundation.settings import DEVELOPMENT_KEY

_CALLERS = 64
_TEXT = "x" * 300


async def append(plan: Plan) -> list[Sample]:
    """64 callers on 64 sessions, and on one."""
    with folder() as place:
        return await inside.measured(plan, "ledger:append_inside", place)


async def append_inside(plan: Plan, place: Path) -> list[Sample]:
    """The sessions wait for an action, so that messages queue and nothing else happens."""
    async with inside.system(place) as system:
        agent = await chat.Place.make(system.rest_url)
        connection = await Connection.open(system.rest_url)
        sessions = [await chat.waiting_session(agent, connection) for _ in range(_CALLERS)]
        hot = await chat.waiting_session(agent, connection)
        channel = system.kernel.channel("ledger", credential=DEVELOPMENT_KEY)
        ledger = session_pb2_grpc.SessionServiceStub(channel)
        many = await _appended(ledger, sessions, plan)
        batched = await _appended(ledger, sessions, plan, events=16)
        one = await _appended(ledger, [hot] * _CALLERS, plan)
        connection.close()
    return [
        Sample(
            "append_many",
            many[0],
            n=_CALLERS,
            note="n is the number of callers, each with a session of its own, one event a call, in"
            f" process; call p50 {many[1]:.1f} ms, p99 {many[2]:.1f} ms; with 16 events a call"
            f" {batched[0]:,.0f}/s",
        ),
        Sample(
            "append_hot",
            one[0],
            n=_CALLERS,
            note=f"64 callers on one session; call p50 {one[1]:.1f} ms, p99 {one[2]:.1f} ms",
        ),
    ]


async def _appended(
    ledger: session_pb2_grpc.SessionServiceStub,
    sessions: Sequence[str],
    plan: Plan,
    events: int = 1,
) -> tuple[float, float, float]:
    """Events per second, and the p50 and p99 of a call in ms."""
    requests = [queued(session, events) for session in sessions]
    await _submitted(ledger, requests, plan.seconds(1))
    times, took = await _submitted(ledger, requests, plan.seconds(5))
    milliseconds = [value * 1e3 for value in times]
    rate = len(times) * events / took
    return rate, percentile(milliseconds, 50), percentile(milliseconds, 99)


async def _submitted(
    ledger: session_pb2_grpc.SessionServiceStub,
    requests: Sequence[session_pb2.SubmitEventsRequest],
    seconds: float,
) -> tuple[list[float], float]:
    times: list[float] = []
    began = time.perf_counter()

    async def caller(request: session_pb2.SubmitEventsRequest) -> None:
        while (now := time.perf_counter()) - began < seconds:
            await ledger.SubmitEvents(request)
            times.append(time.perf_counter() - now)

    await asyncio.gather(*(caller(request) for request in requests))
    return times, time.perf_counter() - began


def queued(session: str, events: int = 1, text: str = _TEXT) -> session_pb2.SubmitEventsRequest:
    """A request with so many messages."""
    block = content_pb2.ContentBlock(text=content_pb2.TextBlock(text=text))
    message = client_events_pb2.UserMessage(content=[block])
    event = client_events_pb2.ClientEvent(user_message=message)
    return session_pb2.SubmitEventsRequest(session_id=session, events=[event] * events)
