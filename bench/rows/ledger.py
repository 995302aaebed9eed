"""Appends through the ledger: in process, because a socket's gRPC call alone costs more.

An append is what DESIGN §14 measured a trial of: one event gets its position and its place in the
hash chain and is committed, by the writer of the ledger that everything of it goes through. A
submission is the whole call around that: key, limits, admission, a turn to be run.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from counterfoil.ledger.v1 import (
    agent_events_pb2,
    client_events_pb2,
    content_pb2,
    events_pb2,
    session_pb2,
    session_pb2_grpc,
)

from bench import chat, inside
from bench.http import Connection
from bench.plan import Plan, Sample
from bench.server import folder
from bench.stats import percentile
from cli.embedded import Embedded
from foundation.settings import DEVELOPMENT_KEY
from services.ledger import session_store
from services.ledger.change import Change
from services.ledger.lanes import Lanes
from services.ledger.stream import Hub

_CALLERS = 64
_TEXT = "x" * 300

Call = Callable[[], Awaitable[object]]


async def append(plan: Plan) -> list[Sample]:
    """64 callers on 64 sessions, and on one."""
    with folder() as place:
        return await inside.measured(plan, "ledger:append_inside", place)


async def append_inside(plan: Plan, place: Path) -> list[Sample]:
    """The sessions wait for an action, so that nothing else happens."""
    async with inside.system(place) as system:
        agent = await chat.Place.make(system.rest_url)
        connection = await Connection.open(system.rest_url)
        sessions = [await chat.waiting_session(agent, connection) for _ in range(_CALLERS + 1)]
        connection.close()
        many, hot = sessions[:_CALLERS], sessions[_CALLERS:] * _CALLERS
        writer = await _Writer.of(system, sessions[0])
        channel = system.kernel.channel("ledger", credential=DEVELOPMENT_KEY)
        submit = session_pb2_grpc.SessionServiceStub(channel).SubmitEvents
        samples = [
            await _sample(plan, "append_many", [writer.append(one) for one in many], _MANY),
            await _sample(plan, "append_hot", [writer.append(one) for one in hot], _HOT),
        ]
        batches = [_calling(submit, queued(one, _BATCH)) for one in many]
        together = (await _measured(plan, batches))[0] * _BATCH
        note = f"{_MANY}; with {_BATCH} events a call {together:,.0f} events/s"
        for figure, chosen, said in (("submit_many", many, note), ("submit_hot", hot, _HOT)):
            calls = [_calling(submit, queued(one)) for one in chosen]
            samples.append(await _sample(plan, figure, calls, said))
    return samples


_MANY = "n is the number of callers, each with a session of its own, one event at a time"
_HOT = "64 callers on one session"
_BATCH = 16


class _Writer:
    """The ledger's writer on the system's database."""

    def __init__(self, lanes: Lanes, workspace: str) -> None:
        self._lanes = lanes
        self._workspace = workspace

    @classmethod
    async def of(cls, system: Embedded, session: str) -> "_Writer":
        db = await system.kernel.database("ledger")
        hub = Hub(db, system.kernel.ring, session_store.probe)
        home = await session_store.home_of_session(db, session)
        return cls(Lanes(db, system.kernel.ring, hub), home.workspace_id)

    def append(self, session: str) -> Call:
        """Appends an event to a session's log."""

        async def decide(change: Change) -> None:
            change.lane.publish(_message(change.lane.next_id()))

        return lambda: self._lanes.apply("bench.append", self._workspace, session, decide)


def _calling(
    method: Callable[[session_pb2.SubmitEventsRequest], Awaitable[object]],
    request: session_pb2.SubmitEventsRequest,
) -> Call:
    return lambda: method(request)


async def _sample(plan: Plan, figure: str, calls: Sequence[Call], note: str) -> Sample:
    rate, p50, p99 = await _measured(plan, calls)
    note = f"{note}; in process; p50 {p50:.1f} ms, p99 {p99:.1f} ms"
    return Sample(figure, rate, n=len(calls), note=note)


async def _measured(plan: Plan, calls: Sequence[Call]) -> tuple[float, float, float]:
    """Calls per second, and the p50 and p99 of one in ms."""
    await _repeated(calls, plan.seconds(1))
    times, took = await _repeated(calls, plan.seconds(5))
    milliseconds = [value * 1e3 for value in times]
    return len(times) / took, percentile(milliseconds, 50), percentile(milliseconds, 99)


async def _repeated(calls: Sequence[Call], seconds: float) -> tuple[list[float], float]:
    times: list[float] = []
    began = time.perf_counter()

    async def caller(call: Call) -> None:
        while (now := time.perf_counter()) - began < seconds:
            await call()
            times.append(time.perf_counter() - now)

    await asyncio.gather(*map(caller, calls))
    return times, time.perf_counter() - began


def _message(id: str) -> events_pb2.Event:
    block = content_pb2.ContentBlock(text=content_pb2.TextBlock(text=_TEXT))
    return events_pb2.Event(id=id, agent_message=agent_events_pb2.AgentMessage(content=[block]))


def queued(session: str, events: int = 1, text: str = _TEXT) -> session_pb2.SubmitEventsRequest:
    """A request with so many messages."""
    block = content_pb2.ContentBlock(text=content_pb2.TextBlock(text=text))
    message = client_events_pb2.UserMessage(content=[block])
    event = client_events_pb2.ClientEvent(user_message=message)
    return session_pb2.SubmitEventsRequest(session_id=session, events=[event] * events)
