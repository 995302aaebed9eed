"""Golden sequences: what a scenario must show on the stream, event by event, and in the history.

async with play(system, tools=[custom_tool("decide")]) as scene:
    await scene.chat.send(message("hello"))
    await scene.shows(
        queued("user.message", "m"),
        *RUNNING,
        shown("user.message", "m"),
        …
    )

A label stands for an id: where it is met first it takes the event's id, from there on it must be
that id, also in fields, where it is written `"@m"`. Fields that a line does not name are free. When
the block ends, nothing more may have come, and the history must be what the stream showed, without
the queued copies and the previews.
"""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from counterfoil.journal.v1 import journal_pb2
from counterfoil.types.v1 import reference_pb2

from tests.support.chat import Chat, Event, Stream, brief
from tests.support.invariants import check_chains, check_everything, check_operations
from tests.support.system import System
from tests.support.waiting import eventually

PREVIEWS = ("event_start", "event_delta")
"""Types that only a stream shows."""


@dataclass(frozen=True)
class Line:
    """One expected event. `many`: one or more of its type in a row, each of which fits."""

    type: str
    label: str = ""
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    queued: bool = False
    many: bool = False

    def __str__(self) -> str:
        marks = "*" * self.queued + "+" * self.many
        return f"{self.type}{marks} {self.label} {json.dumps(self.fields)}"


def shown(type: str, label: str = "", **fields: Any) -> Line:
    """An event that took effect, or a preview."""
    return Line(type, label, fields)


def queued(type: str, label: str, **fields: Any) -> Line:
    """The first copy of a client's event, whose `processed_at` is null."""
    return Line(type, label, fields, queued=True)


def many(type: str, label: str, **fields: Any) -> Line:
    """One or more events of this type."""
    return Line(type, label, fields, many=True)


def idle(reason: str, *waits_for: str) -> list[Line]:
    """The three events that end or park a turn; `waits_for` are labels of blocking events."""
    stop: dict[str, Any] = {"type": reason}
    if waits_for:
        stop["event_ids"] = [f"@{label}" for label in waits_for]
    return [
        shown(
            "session.thread_status_idle",
            session_thread_id="@P",
            stop_reason=stop,
            stop_details=None,
        ),
        shown("session.usage", budget=None),
        shown("session.status_idle", stop_reason=stop, stop_details=None),
    ]


RUNNING = [
    shown("session.thread_status_running", session_thread_id="@P"),
    shown("session.status_running"),
]
"""What begins or resumes a turn; `P` is the primary thread."""


class Scene:
    """A session whose stream is compared with what it must show."""

    def __init__(self, chat: Chat, stream: Stream) -> None:
        self.chat = chat
        self._stream = stream
        self._ids: dict[str, str] = {}
        self._ahead: list[Event] = []
        self._seen: list[Event] = []

    def id(self, label: str) -> str:
        """The id that a label stands for."""
        return self._ids[label]

    def event(self, label: str) -> Event:
        """The newest copy of a labelled event."""
        return next(e for e in reversed(self._seen) if e.get("id") == self._ids[label])

    async def shows(self, *expected: Line) -> list[Event]:
        """The next events of the stream, which must be these."""
        before = len(self._seen)
        for number, line in enumerate(expected):
            self._check(line, await self._next(), number)
            while line.many and (event := await self._next())["type"] == line.type:
                self._check(line, event, number)
            if line.many:
                self._ahead.append(self._seen.pop())
        return self._seen[before:]

    async def _next(self) -> Event:
        event = self._ahead.pop() if self._ahead else await self._stream.next()
        self._seen.append(event)
        return event

    def _check(self, line: Line, event: Event, number: int) -> None:
        found = {"type": event["type"], "queued": event.get("processed_at", 0) is None}
        wanted: dict[str, Any] = {"type": line.type, "queued": line.queued}
        self._bind(line, event)
        for name, value in line.fields.items():
            wanted[name] = self._resolved(value, event.get(name))
            found[name] = event.get(name, "(absent)")
        if line.label:
            wanted["id"], found["id"] = self._ids.get(line.label), _id_of(event)
        known = "\n".join(map(brief, self._seen))
        assert found == wanted, f"line {number}, {line}, is not\n{brief(event)}\nof\n{known}"

    def _bind(self, line: Line, event: Event) -> None:
        if line.label and event["type"] == line.type:
            self._ids.setdefault(line.label, _id_of(event))

    def _resolved(self, value: Any, found: Any) -> Any:
        """The value with ids for labels; a label that is met first in a field takes that id."""
        if isinstance(value, str) and value.startswith("@"):
            if isinstance(found, str):
                self._ids.setdefault(value[1:], found)
            return self._ids.get(value[1:], value)
        if isinstance(value, list):
            values: list[Any] = value
            return [self._resolved(one, None) for one in values]
        if isinstance(value, dict):
            members: dict[str, Any] = value
            return {name: self._resolved(one, None) for name, one in members.items()}
        return value

    async def ends(self) -> None:
        """The history is what the stream showed."""
        history = await self.chat.history()
        lasting = [e for e in self._seen if e["type"] not in PREVIEWS]
        marked = [e for e in lasting if e.get("processed_at", 0) is not None]
        done = {event["id"] for event in marked}
        waiting = [event for event in lasting if event["id"] not in done]
        assert history == marked + waiting, "\n".join(map(brief, history))
        _copies_are_identical(lasting)
        assert not self._ahead, list(map(brief, self._ahead))


def _id_of(event: Event) -> str:
    """An event's own id; a preview's is that of the event that it announces."""
    if "id" in event:
        return event["id"]
    return event["event_id"] if "event_id" in event else event["event"]["id"]


def _copies_are_identical(events: Sequence[Event]) -> None:
    first: dict[str, Event] = {}
    for event in events:
        copy = first.setdefault(event["id"], event)
        assert {**copy, "processed_at": event["processed_at"]} == event


@asynccontextmanager
async def play(
    system: System, *, deltas: Sequence[str] = (), finished: bool = True, **agent: Any
) -> AsyncGenerator[Scene]:
    """A new session of a new agent (see `Chat.open`) with an open stream; compared at the end.

    Without `finished` the session may end otherwise than idle: only what is stored is checked.
    """
    chat = await Chat.open(system, **agent)
    async with chat.stream(*deltas) as stream:
        scene = Scene(chat, stream)
        yield scene
        await scene.ends()
    if finished:
        await check_everything(chat, await chat.history())
    else:
        thread = await check_chains(chat)
        await eventually(lambda: _settled(chat, thread))
        await check_operations(chat, thread)


async def _settled(chat: Chat, thread: reference_pb2.ThreadRef) -> bool:
    """Whether nothing that was prepared waits for a runner that closes it."""
    request = journal_pb2.InspectOperationsRequest(thread=thread, reader="test", purpose="golden")
    found = await chat.system.journal.InspectOperations(request)
    waits = journal_pb2.OPERATION_STATE_PREPARED
    return not [one for one in found.operations if one.state == waits]


__all__ = ["RUNNING", "Line", "Scene", "idle", "many", "play", "queued", "shown"]
