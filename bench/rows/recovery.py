"""`kill -9` of everything in the middle of work."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bench import chat
from bench.http import BadAnswer, Connection, Events
from bench.plan import Plan, Sample
from bench.server import Embedded, embedded

_SESSIONS = 64
_KILLED_AFTER = (0.05, 0.2, 0.5)
"""Seconds of work before the kill, so that turns die at different steps."""
_SECONDS_MAX = 60


@dataclass
class _Found:
    took: float
    ready: float
    lost: int = 0
    doubled: int = 0
    accepted: int = 0


async def recovery(plan: Plan) -> list[Sample]:
    """Several rounds; the slowest counts. Lost and doubled are counted in the histories."""
    idle: list[float] = []
    with embedded() as system:
        agent = await chat.Place.make(system.url)
        for _ in range(3):
            system.server.kill_all()
            idle.append(await asyncio.to_thread(system.start))
        number = min(plan.count(_SESSIONS), _SESSIONS)
        found = [await _round(system, agent, seconds, number) for seconds in _KILLED_AFTER]
    worst = max(found, key=lambda one: one.took)
    accepted = sum(one.accepted for one in found)
    note = (
        "seconds from the start of the new process (import, PostgreSQL's recovery, migrations)"
        " until every session with accepted input is through its turn or waits for its action;"
        f" slowest of {len(found)} kills; ready to serve after {worst.ready:.2f} s of it, the"
        f" rest {worst.took - worst.ready:.2f} s"
    )
    return [
        Sample("idle_start", sorted(idle)[1], n=len(idle)),
        Sample(
            "recovery",
            worst.took,
            n=len(found),
            note=note,
            series=[one.took for one in found],
        ),
        Sample("recovery_lost", sum(one.lost for one in found), n=accepted),
        Sample("recovery_doubled", sum(one.doubled for one in found), n=accepted),
    ]


@dataclass
class _Session:
    """One client's view: what the server accepted before it died."""

    id: str
    gate: bool
    accepted: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        return chat.GATE_TEXT if self.gate else f"hello {self.id}"


async def _round(system: Embedded, agent: chat.Place, seconds: float, number: int) -> _Found:
    connection = await Connection.open(system.url)
    sessions = [
        _Session(await agent.session(connection), gate=bool(index % 2)) for index in range(number)
    ]
    connection.close()
    working = [asyncio.create_task(_work(system.url, one)) for one in sessions]
    await asyncio.sleep(seconds)
    await asyncio.to_thread(system.server.kill_all)
    await asyncio.gather(*working)
    began = time.monotonic()
    ready = await asyncio.to_thread(system.start)
    accepted = [one for one in sessions if one.accepted]
    histories = await asyncio.gather(*(_settled(system.url, one) for one in accepted))
    found = _Found(time.monotonic() - began, ready, accepted=sum(len(o.accepted) for o in accepted))
    for one, history in zip(accepted, histories, strict=True):
        _count(found, one, history)
    return found


async def _work(url: str, session: _Session) -> None:
    """Sends until the server is gone; notes what it accepted."""
    try:
        connection = await Connection.open(url)
        events = await Events.open(url, session.id)
        await chat.send(connection, session.id, chat.message(session.text))
        session.accepted.append("user.message")
        if session.gate:
            use = await chat.asked(events)
            await chat.send(connection, session.id, chat.result(use))
            session.accepted.append("user.custom_tool_result")
        await chat.over(events)
    except (OSError, BadAnswer, TimeoutError):
        return


async def _settled(url: str, session: _Session) -> list[dict[str, Any]]:
    """The history, once nothing more happens without the client."""
    connection = await Connection.open(url)
    events = await Events.open(url, session.id)
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            while True:
                history = await chat.history(connection, session.id)
                if _rests(history, answered="user.custom_tool_result" in session.accepted):
                    return history
                await events.until(b"event: session.status_idle")
    finally:
        events.close()
        connection.close()


def _rests(history: list[dict[str, Any]], *, answered: bool) -> bool:
    last = next((e for e in reversed(history) if e["type"].startswith("session.status")), None)
    if last is None or last["type"] != "session.status_idle":
        return False
    return last["stop_reason"]["type"] != "requires_action" or not answered


def _count(found: _Found, session: _Session, history: list[dict[str, Any]]) -> None:
    """Every accepted input once; every answer at most once, and one if the session is through."""
    types = Counter(event["type"] for event in history)
    found.lost += sum(types[type_] < 1 for type_ in session.accepted)
    once = ("user.message", "user.custom_tool_result", "agent.message", "agent.custom_tool_use")
    found.doubled += sum(max(types[type_] - 1, 0) for type_ in once)
    ids = [event["id"] for event in history]
    found.doubled += len(ids) - len(set(ids))
    through = not session.gate or "user.custom_tool_result" in session.accepted
    found.lost += through and types["agent.message"] < 1
