"""One session, driven as an application drives it: with the official client.

`Chat.complete` follows the recovery recipe of the client contract: open the stream, then list,
dedupe by id, answer what is not answered, send again what was not accepted.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import anthropic
import httpx2

from tests.support.system import System
from tests.support.zygote import Dead

Event = dict[str, Any]
Answer = Callable[[Event], Event | None]
"""What to send for a use event; None to leave it to somebody else."""

AGENT_MODEL = "claude-sonnet-4-5"
_COMPLETE_SECONDS = 60.0
_PAUSE_SECONDS = 0.02


def message(text: str) -> Event:
    """A `user.message` of one text."""
    return {"type": "user.message", "content": [{"type": "text", "text": text}]}


def result(use_id: str, text: str, *, is_error: bool | None = None) -> Event:
    """A `user.custom_tool_result` of one text."""
    made: Event = {
        "type": "user.custom_tool_result",
        "custom_tool_use_id": use_id,
        "content": [{"type": "text", "text": text}],
    }
    return made if is_error is None else {**made, "is_error": is_error}


def confirmation(use_id: str, decision: str = "allow", **more: str) -> Event:
    """A `user.tool_confirmation`."""
    return {"type": "user.tool_confirmation", "tool_use_id": use_id, "result": decision, **more}


INTERRUPT: Event = {"type": "user.interrupt"}


def custom_tool(name: str) -> dict[str, Any]:
    """A custom tool of an agent."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"type": "custom", "name": name, "description": f"The {name}.", "input_schema": schema}


def stop_of(event: Event) -> str | None:
    """The stop reason's type of a `session.status_idle`; None for any other event."""
    return event["stop_reason"]["type"] if event["type"] == "session.status_idle" else None


def is_idle(event: Event) -> bool:
    """The session waits, for whatever reason."""
    return event["type"] == "session.status_idle"


def is_over(event: Event) -> bool:
    """The session has nothing left to do."""
    return stop_of(event) not in (None, "requires_action")


def asks(event: Event) -> bool:
    """The session waits for actions."""
    return stop_of(event) == "requires_action"


class Stream:
    """An open event stream; everything that came is in `events`."""

    def __init__(self, chat: "Chat", source: AsyncIterator[Any]) -> None:
        self._chat = chat
        self._source = source
        self.events: list[Event] = []

    async def next(self, seconds: float = 20) -> Event:
        """The next event."""
        async with asyncio.timeout(seconds):
            event = (await anext(self._source)).to_dict(mode="json")
        self.events.append(event)
        self._chat.note(event)
        return event

    async def until(self, last: Callable[[Event], bool]) -> list[Event]:
        """The next events up to and including the first for which `last` holds."""
        found: list[Event] = []
        while not found or not last(found[-1]):
            found.append(await self.next())
        return found


class Chat:
    """A session and a client for it."""

    def __init__(
        self,
        system: System,
        id: str,
        client: anthropic.AsyncAnthropic,
        *,
        agent_id: str = "",
        environment_id: str = "",
    ) -> None:
        self.system = system
        self.id = id
        self.client = client
        self.agent_id = agent_id
        self.environment_id = environment_id

    @classmethod
    async def open(
        cls,
        system: System,
        *,
        tools: Sequence[dict[str, Any]] = (),
        system_prompt: str | None = None,
        model: str | dict[str, Any] = AGENT_MODEL,
    ) -> Self:
        """A new agent, environment and session. Tries again when the system is away."""
        client = system.client()
        agent: Any = {"model": model, "name": "tested", "tools": list(tools)}
        if system_prompt is not None:
            agent["system"] = system_prompt

        async def make() -> Self:
            agent_id = (await client.beta.agents.create(**agent)).id
            # A repeat after a lost answer must not meet the name that it made itself.
            environment = await client.beta.environments.create(name=f"tested {uuid.uuid4()}")
            made = await client.beta.sessions.create(agent=agent_id, environment_id=environment.id)
            return cls(system, made.id, client, agent_id=agent_id, environment_id=environment.id)

        return await patiently(system, make)

    async def fork(self, at: Event | None = None) -> Self:
        """A new session with this one's history, up to an event or to its end. Tries again under
        the same key when the system is away."""
        path, key = f"/v1/sessions/{self.id}/fork", str(uuid.uuid4())
        body = {} if at is None else {"at_event_id": at["id"]}

        async def make() -> Self:
            http = self.system.http()
            answer = await http.post(path, json=body, headers={"idempotency-key": key})
            if answer.status_code >= 500:
                raise httpx2.ReadError(answer.text)
            assert answer.status_code == 200, answer.text
            return type(self)(self.system, answer.json()["id"], self.client)

        return await patiently(self.system, make)

    async def send(self, *events: Event) -> list[Event]:
        """Sends events in one request; their echoes."""
        body: Any = list(events)
        answer = await self.client.beta.sessions.events.send(self.id, events=body)
        return [event.to_dict(mode="json") for event in answer.data or ()]

    @asynccontextmanager
    async def stream(self, *deltas: str, **headers: str) -> AsyncGenerator[Stream]:
        """An open stream: what happens from now on arrives."""
        chosen: Any = {"event_deltas": list(deltas)} if deltas else {}
        source = await self.client.beta.sessions.events.stream(
            self.id, extra_headers=headers, **chosen
        )
        async with source:
            yield Stream(self, aiter(source))

    async def history(self) -> list[Event]:
        """Every event, as the list gives it."""
        found = self.client.beta.sessions.events.list(self.id)
        return [event.to_dict(mode="json") async for event in found]

    async def say(self, text: str) -> list[Event]:
        """Sends a message; what the stream brings until the session waits."""
        async with self.stream() as stream:
            await self.send(message(text))
            return await stream.until(is_idle)

    async def complete(
        self,
        messages: Sequence[str],
        answer: Answer = lambda _: None,
        *,
        early: bool = True,
        until: Callable[[Event], bool] = is_over,
    ) -> list[Event]:
        """Brings the session to its end, whatever dies meanwhile; the history.

        With `early`, calls are answered when they are seen, else when the session waits for them.
        `until` says which status event is the end, once every message was processed.
        """
        async with asyncio.timeout(_COMPLETE_SECONDS):
            while True:
                try:
                    return await self._try_to_complete(messages, answer, early, until)
                except TimeoutError:
                    known = map(brief, await self.history())
                    self.system.notes += [f"{self.id} waits in vain, behind:", *known]
                    raise
                except (*_AWAY, anthropic.APIStatusError, StopAsyncIteration) as error:
                    self.system.notes.append(f"{self.id[-4:]} again after {error!r}")
                    # 200: the stream ended with an error event; 400: an answer whose
                    # acknowledgement was lost.
                    status = getattr(error, "status_code", 200)
                    if status < 500 and status not in (200, 400):
                        raise
                await _back(self.system)

    async def _try_to_complete(
        self,
        messages: Sequence[str],
        answer: Answer,
        early: bool,
        until: Callable[[Event], bool],
    ) -> list[Event]:
        async with self.stream() as stream:
            known = {event["id"]: event for event in await self.history()}
            while not _finished(known, messages, until):
                missing = _missing(list(known.values()), messages, answer, early)
                for event in missing:
                    for echo in await self.send(event):
                        known.setdefault(echo["id"], echo)
                if not missing:
                    event = await stream.next()
                    known.pop(event["id"], None)
                    known[event["id"]] = event
        return await self.history()

    def note(self, event: Event) -> None:
        """Keeps an event for the diagnosis."""
        self.system.notes.append(f"{self.id[-4:]} {brief(event)}")


def _missing(
    known: list[Event], messages: Sequence[str], answer: Answer, early: bool
) -> list[Event]:
    said = [event["content"][0]["text"] for event in known if event["type"] == "user.message"]
    unsaid = [text for text in messages if text not in said]
    if unsaid:
        return [message(unsaid[0])]
    answered = {event.get("custom_tool_use_id") or event.get("tool_use_id") for event in known}
    open_ = [event for event in known if _waits(event) and event["id"] not in answered]
    statuses = [event for event in known if event["type"].startswith("session.status_")]
    if not early and not (statuses and asks(statuses[-1])):
        return []
    return [made for event in open_ if (made := answer(event)) is not None]


def _waits(event: Event) -> bool:
    ask = event["type"] == "agent.tool_use" and event.get("evaluated_permission") == "ask"
    return ask or event["type"] == "agent.custom_tool_use"


def _finished(
    known: dict[str, Event], messages: Sequence[str], until: Callable[[Event], bool]
) -> bool:
    events = list(known.values())
    said = [event for event in events if event["type"] == "user.message"]
    if len(said) < len(messages) or any(event.get("processed_at") is None for event in said):
        return False
    statuses = [event for event in events if event["type"].startswith("session.status_")]
    return bool(statuses) and until(statuses[-1])


_AWAY = (anthropic.APIConnectionError, anthropic.InternalServerError, httpx2.TransportError)
"""What a client sees of a server that is away."""


async def patiently(system: System, make: Callable[[], Any]) -> Any:
    """The result of `make`, called again while the system is away."""
    async with asyncio.timeout(_COMPLETE_SECONDS):
        while True:
            with suppress(*_AWAY):
                return await make()
            await _back(system)


async def _back(system: System) -> None:
    # A connection breaks before anybody has noticed that the process is gone.
    await asyncio.sleep(_PAUSE_SECONDS)
    await system.up.wait()


@asynccontextmanager
async def revived(system: System, again: str = "") -> AsyncGenerator[list[str]]:
    """Whoever dies inside the block is started again: the first with the failpoints `again`, later
    ones without any; the names of the dead."""
    dead: list[str] = []

    async def watch() -> None:
        failpoints = again
        while True:
            dead.append(await system.died(600))
            await start_anyhow(system, failpoints)
            failpoints = ""

    task = asyncio.create_task(watch())
    try:
        yield dead
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


async def start_anyhow(system: System, failpoints: str, **options: Any) -> bool:
    """Starts with failpoints; when one is hit before everything is ready, starts again without.
    True when that happened."""
    try:
        await system.start(failpoints, **options)
    except Dead:
        system.notes.append(f"died at {failpoints} before it was ready")
        await system.start()
        return True
    return False


def brief(event: Event) -> str:
    """One line about an event."""
    kept = {k: v for k, v in event.items() if k not in ("type", "processed_at", "usage", "budget")}
    queued = " (queued)" if event.get("processed_at", 0) is None else ""
    return f"{event['type']}{queued} {json.dumps(kept)[:200]}"


def types_of(events: Sequence[Event]) -> list[str]:
    """Event types in order; a queued event has a star."""
    return [e["type"] + ("*" if e.get("processed_at", 0) is None else "") for e in events]
