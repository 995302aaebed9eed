"""What the soak reads of a frame, and how it sends so that a lost answer doubles nothing."""

import asyncio
import random
import time
import uuid
from typing import Any

import msgspec

from bench.http import BadAnswer, Connection

AWAY = (OSError, TimeoutError)
"""What a client sees of a server that is away."""

_ACCEPT_SECONDS_MAX = 60.0


class StopReason(msgspec.Struct):
    """Why the session is idle."""

    type: str
    event_ids: list[str] = []


class Event(msgspec.Struct):
    """What the soak needs of an event."""

    id: str
    type: str
    processed_at: str | None = None
    stop_reason: StopReason | None = None


class Rejected(Exception):
    """A request was refused, or not accepted in time."""


_decoder = msgspec.json.Decoder(Event)


def pause() -> float:
    """Seconds that a client waits before it comes back; spread, so that not all come at once."""
    return random.uniform(0.1, 0.6)


def parse(frame: bytes) -> tuple[int, Event] | None:
    """Position and event of a frame; None for a comment, or an error that ends the stream."""
    position, data = -1, b""
    for line in frame.split(b"\n"):
        if line.startswith(b"id:"):
            position = int(line.rpartition(b":")[2])
        elif line.startswith(b"data:"):
            data = line[5:]
    return (position, _decoder.decode(data)) if position >= 0 else None


class Caller:
    """One client's connection. A POST keeps its `Idempotency-Key` until it is answered."""

    def __init__(self, url: str) -> None:
        self.repeats = 0
        self._url = url
        self._connection: Connection | None = None

    async def post(self, path: str, value: object) -> dict[str, Any]:
        """The answer. Raises Rejected."""
        headers = f"idempotency-key: {uuid.uuid4()}\r\n"
        return await self._persist("POST", path, msgspec.json.encode(value), headers)

    async def get(self, path: str) -> dict[str, Any]:
        """The answer. Raises Rejected."""
        return await self._persist("GET", path, b"", "")

    def close(self) -> None:
        """Leaves."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _persist(self, verb: str, path: str, body: bytes, headers: str) -> dict[str, Any]:
        deadline = time.monotonic() + _ACCEPT_SECONDS_MAX
        while True:
            try:
                return await self._once(verb, path, body, headers)
            except BadAnswer as error:
                passes = error.status >= 500 or error.status == 429
                if not passes or time.monotonic() > deadline:
                    raise Rejected(f"{verb} {path}: {error}") from error
            except AWAY as error:
                self.close()
                if time.monotonic() > deadline:
                    raise Rejected(f"{verb} {path}: {error!r}") from error
            self.repeats += 1
            await asyncio.sleep(pause())

    async def _once(self, verb: str, path: str, body: bytes, headers: str) -> dict[str, Any]:
        if self._connection is None:
            self._connection = await Connection.open(self._url)
        answer = await self._connection.request(verb, path, body, headers)
        return msgspec.json.decode(answer, type=dict[str, Any])
