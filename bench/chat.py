"""Sessions as a light client drives them: the gate loop and the text turn."""

import time
import uuid
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.http import Connection, Events, data_of

_TOOL = {
    "type": "custom",
    "name": "decide",
    "description": "Asks a person.",
    "input_schema": {"type": "object"},
}
_SCRIPT = [
    {"content": [{"type": "tool_use", "name": "decide", "input": {"amount": 1}}]},
    {"content": [{"type": "text", "text": "Done."}]},
]
GATE_TEXT = "offline-script: " + msgspec.json.encode(_SCRIPT).decode()
"""A message for which the offline model calls the custom tool, then says one text."""

_ASKS = b'"requires_action"'
_OVER = b'"end_turn"'
_IDLE = b"event: session.status_idle"


@dataclass(frozen=True)
class Place:
    """An agent with one custom tool, and an environment."""

    url: str
    agent: str
    environment: str

    @classmethod
    async def make(cls, url: str, model: str = "claude-sonnet-4-5") -> "Place":
        """Creates both."""
        connection = await Connection.open(url)
        environment = await connection.post("/v1/environments", {"name": f"bench {uuid.uuid4()}"})
        agent = await connection.post(
            "/v1/agents", {"name": "bench", "model": model, "tools": [_TOOL]}
        )
        connection.close()
        return cls(url, agent["id"], environment["id"])

    async def session(self, connection: Connection) -> str:
        """A new session's id."""
        body = {"agent": self.agent, "environment_id": self.environment}
        return (await connection.post("/v1/sessions", body))["id"]


async def send(connection: Connection, session: str, *events: object) -> None:
    """Sends events in one request."""
    await connection.post(f"/v1/sessions/{session}/events", {"events": events})


def message(text: str) -> dict[str, object]:
    """A `user.message`."""
    return {"type": "user.message", "content": [{"type": "text", "text": text}]}


def result(use: str) -> dict[str, object]:
    """The answer to a custom tool call."""
    content = [{"type": "text", "text": "approved"}]
    return {"type": "user.custom_tool_result", "custom_tool_use_id": use, "content": content}


async def gate_loop(place: Place, connection: Connection) -> float:
    """Create, stream, message, wait for the action, result, final idle; its seconds."""
    began = time.perf_counter()
    session = await place.session(connection)
    events = await Events.open(place.url, session)
    try:
        await send(connection, session, message(GATE_TEXT))
        await send(connection, session, result(await asked(events)))
        await over(events)
        return time.perf_counter() - began
    finally:
        events.close()


async def waiting_session(place: Place, connection: Connection) -> str:
    """A session that waits for an action: further messages queue."""
    session = await place.session(connection)
    events = await Events.open(place.url, session)
    try:
        await send(connection, session, message(GATE_TEXT))
        await asked(events)
    finally:
        events.close()
    return session


async def text_turn(connection: Connection, events: Events, session: str) -> float:
    """One message to the final idle on the open stream; its seconds."""
    began = time.perf_counter()
    await send(connection, session, message("How are you?"))
    await over(events)
    return time.perf_counter() - began


async def asked(events: Events) -> str:
    """Waits until the session waits for an action; the id of the use."""
    return data_of(await events.until(_IDLE, _ASKS))["stop_reason"]["event_ids"][0]


async def history(connection: Connection, session: str) -> list[dict[str, Any]]:
    """A short session's events."""
    return (await connection.get(f"/v1/sessions/{session}/events?limit=1000"))["data"]


async def over(events: Events) -> None:
    """Waits until the session has nothing left to do."""
    await events.until(_IDLE, _OVER)
