"""Peers on real sockets that do to a connection what a test wants."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from services.runner.adapter.assemble import Answer
from services.runner.adapter.failures import ProviderFailure
from services.runner.adapter.messages import MessagesAdapter
from tests.services.runner.adapter.support import ignore

BODY = b'{"messages":[]}'


@dataclass
class Connection:
    """One connection, seen by the peer."""

    peer: "Peer"
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self) -> int:
        """Reads a request's head; the length of its body."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        self.peer.requests += 1
        return int(head.split("content-length: ")[1].split("\r\n")[0])

    async def request(self) -> bytes:
        return await self.reader.readexactly(await self.head())

    async def send(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()

    def reset(self) -> None:
        """Ends it as a process that dies does."""
        self.writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Returns when the other side has closed."""
        while await self.reader.read(65536):
            pass


Act = Callable[[Connection], Awaitable[None]]


@dataclass
class Peer:
    """A provider of which each connection does the same."""

    act: Act
    url: str = ""
    connections: int = 0
    requests: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.tasks.append(asyncio.create_task(self.serve(Connection(self, reader, writer))))

    async def serve(self, connection: Connection) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await self.act(connection)
        connection.writer.close()
        with suppress(ConnectionError):
            await connection.writer.wait_closed()


@asynccontextmanager
async def peer(act: Act, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Peer]:
    made = Peer(act)
    server = await asyncio.start_server(made.accept, "127.0.0.1", 0, ssl=tls)
    scheme = "https" if tls else "http"
    made.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made
    await asyncio.wait_for(asyncio.gather(*made.tasks), 5)


@asynccontextmanager
async def adapter(url: str, idle_seconds: float = 5) -> AsyncGenerator[MessagesAdapter]:
    made = MessagesAdapter(url, "the-key", idle_seconds=idle_seconds)
    try:
        yield made
    finally:
        await made.close()


async def ask(made: MessagesAdapter, body: bytes = BODY) -> Answer:
    return await made.call(body, stream=True, on_piece=ignore)


async def failure(url: str, body: bytes = BODY, idle_seconds: float = 5) -> ProviderFailure:
    async with adapter(url, idle_seconds) as made:
        with pytest.raises(ProviderFailure) as caught:
            await ask(made, body)
        return caught.value


def told(found: ProviderFailure) -> tuple[str, bool]:
    return found.kind, found.retryable


@asynccontextmanager
async def answering(response: bytes) -> AsyncGenerator[Peer]:
    async def act(connection: Connection) -> None:
        await connection.request()
        await connection.send(response)
        await connection.gone()

    async with peer(act) as made:
        yield made
