"""A light HTTP/1.1 client: it shares the cores with what it measures, so it must cost little.

Requests are written by hand and parsed by httptools; a stream hands over bytes as they come. The
official client is measured beside it (`bench.rows.gate`), because it is what applications use.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import urlsplit

import httptools
import msgspec

from foundation.settings import DEVELOPMENT_KEY

SECONDS_MAX = 60.0
_JSON = "content-type: application/json\r\n"


class BadAnswer(Exception):
    """The server said something else than success; the text holds its words."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status} {body[:500].decode(errors='replace')}")
        self.status = status


class _Receiver(asyncio.Protocol):
    """One connection. `chunk` sees body bytes of a stream; unary answers are collected."""

    def __init__(self, chunk: Callable[[bytes], None] | None) -> None:
        self._chunk = chunk
        self._parser: Any = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self.answered: asyncio.Future[bytes] | None = None
        self.transport: asyncio.Transport | None = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._chunk is not None:
            self._chunk(b"")
        self._fail(exc or ConnectionResetError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        """A stream is answered by its headers."""
        if self._chunk is not None and self._parser.get_status_code() == 200:
            self._settle(b"")

    def on_body(self, body: bytes) -> None:
        """Body bytes, without the framing of chunks."""
        if self._chunk is not None and self._parser.get_status_code() == 200:
            self._chunk(body)
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """The end of an answer. That of a stream ends the connection: nothing else comes on it."""
        if self._chunk is not None and self._parser.get_status_code() == 200:
            self._settle(b"")
            if self.transport is not None:
                self.transport.close()
            return
        body, self._body = b"".join(self._body), []
        status: int = self._parser.get_status_code()
        if status < 300:
            self._settle(body)
        else:
            self._fail(BadAnswer(status, body))
        self._parser = httptools.HttpResponseParser(self)

    def _settle(self, body: bytes) -> None:
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(body)

    def _fail(self, error: Exception) -> None:
        if self.answered is not None and not self.answered.done():
            self.answered.set_exception(error)


class Connection:
    """One connection to the server, one request at a time."""

    def __init__(self, receiver: _Receiver, host: str) -> None:
        self._receiver = receiver
        self._host = host

    @classmethod
    async def open(cls, url: str, chunk: Callable[[bytes], None] | None = None) -> "Connection":
        """Connects to `http://host:port`; with `chunk`, for one stream."""
        parts = urlsplit(url)
        loop = asyncio.get_running_loop()
        _, receiver = await loop.create_connection(
            lambda: _Receiver(chunk), parts.hostname or "", parts.port or 80
        )
        return cls(receiver, parts.netloc)

    async def request(
        self, verb: str, path: str, body: bytes = b"", headers: str = "", *, json: bool = True
    ) -> bytes:
        """The body of a successful answer; for a stream, returns when its headers are there.
        Raises BadAnswer, OSError, TimeoutError."""
        receiver = self._receiver
        if receiver.closed or receiver.transport is None:
            raise ConnectionResetError("the connection is closed")
        receiver.answered = asyncio.get_running_loop().create_future()
        head = (
            f"{verb} {path} HTTP/1.1\r\nhost: {self._host}\r\nx-api-key: {DEVELOPMENT_KEY}\r\n"
            f"{_JSON if json else ''}content-length: {len(body)}\r\n{headers}\r\n"
        )
        receiver.transport.write(head.encode() + body)
        async with asyncio.timeout(SECONDS_MAX):
            return await receiver.answered

    async def post(self, path: str, value: object) -> dict[str, Any]:
        """Posts JSON; the JSON of the answer."""
        return msgspec.json.decode(
            await self.request("POST", path, msgspec.json.encode(value)), type=dict[str, Any]
        )

    async def get(self, path: str) -> dict[str, Any]:
        """The JSON of the answer."""
        return msgspec.json.decode(await self.request("GET", path), type=dict[str, Any])

    def close(self) -> None:
        """Closes the connection."""
        if self._receiver.transport is not None:
            self._receiver.transport.abort()


class Events:
    """An open event stream, cut into frames."""

    def __init__(self) -> None:
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._rest = b""
        self._connection: Connection | None = None

    @classmethod
    async def open(cls, url: str, session: str, headers: str = "") -> "Events":
        """Opens the stream of a session; what happens from now on arrives."""
        events = cls()
        connection = await Connection.open(url, events._came)
        events._connection = connection
        await connection.request("GET", f"/v1/sessions/{session}/events/stream", headers=headers)
        return events

    async def until(self, *words: bytes) -> bytes:
        """The next frame that holds all the words. Raises TimeoutError, ConnectionResetError."""
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                frame = await self._frames.get()
                if not frame:
                    raise ConnectionResetError("the stream ended")
                if all(word in frame for word in words):
                    return frame

    def close(self) -> None:
        """Leaves."""
        if self._connection is not None:
            self._connection.close()

    def _came(self, data: bytes) -> None:
        if not data:
            self._frames.put_nowait(b"")
            return
        *frames, self._rest = (self._rest + data).split(b"\n\n")
        for frame in frames:
            self._frames.put_nowait(frame)


def data_of(frame: bytes) -> dict[str, Any]:
    """The JSON of a frame."""
    for line in frame.split(b"\n"):
        if line.startswith(b"data:"):
            return msgspec.json.decode(line[5:].strip(), type=dict[str, Any])
    raise ValueError("a frame without data")
