"""An open stream whose client comes back, behind the last frame that it has, when it is cut off."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bench.http import BadAnswer, Connection
from tests.soak.wire import AWAY, Event, parse, pause


@dataclass(frozen=True)
class Frame:
    """One frame as a reader remembers it."""

    position: int
    id: str
    queued: bool


class Reader:
    """Reads one session until its task is cancelled."""

    def __init__(self, url: str, session: str, came: Callable[[Event], None]) -> None:
        self.session = session
        self.frames: list[Frame] = []
        self.openings = 0
        self.wrong: Exception | None = None
        self.open = asyncio.Event()
        self._url = url
        self._came = came
        self._rest = b""
        self._cut = asyncio.Event()
        self._arrived = asyncio.Event()

    @property
    def position(self) -> int:
        """Where the next opening goes on."""
        return self.frames[-1].position if self.frames else 0

    async def run(self) -> None:
        """Keeps the stream open; `wrong` says what a server that is there should not say."""
        while self.wrong is None:
            try:
                await self._once()
            except BadAnswer as error:
                if error.status < 500:
                    self.wrong = error
            except AWAY:
                pass
            await asyncio.sleep(pause())

    async def reached(self, id: str) -> None:
        """Returns when the event with this id was read, processed."""
        while not any(frame.id == id and not frame.queued for frame in reversed(self.frames)):
            self._arrived.clear()
            await self._arrived.wait()

    async def _once(self) -> None:
        self._rest = b""
        self._cut.clear()
        connection = await Connection.open(self._url, self._chunk)
        try:
            path = f"/v1/sessions/{self.session}/events/stream"
            behind = f"last-event-id: {self.session}:{self.position}\r\n"
            await connection.request("GET", path, headers=behind)
            self.openings += 1
            self.open.set()
            await self._cut.wait()
        finally:
            self.open.clear()
            connection.close()

    def _chunk(self, data: bytes) -> None:
        if not data:
            self._cut.set()
            return
        *frames, self._rest = (self._rest + data).split(b"\n\n")
        for frame in frames:
            try:
                self._read(frame)
            except ValueError as error:
                self.wrong = error
                self._cut.set()

    def _read(self, frame: bytes) -> None:
        found = parse(frame)
        if found is None:
            return
        position, event = found
        self.frames.append(Frame(position, event.id, event.processed_at is None))
        self._arrived.set()
        self._came(event)
