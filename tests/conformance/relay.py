"""A stretch of network between a client and a server that can be cut."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Relay:
    """Passes connections on to a server; while it is down, there are none."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._open: set[asyncio.StreamWriter] = set()
        self._is_down = False
        self.url = ""

    def down(self) -> int:
        """Aborts every connection and refuses new ones; how many ends were open."""
        self._is_down = True
        for writer in self._open:
            writer.transport.abort()
        return len(self._open)

    def up(self) -> None:
        """Passes new connections on."""
        self._is_down = False

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        if self._is_down:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        pair = {writer, far_writer}
        self._open |= pair
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        self._open -= pair


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
    target.close()


@asynccontextmanager
async def relay_to(url: str) -> AsyncGenerator[Relay]:
    """A relay to the server at a URL."""
    relay = Relay(url)
    server = await asyncio.start_server(relay.connected, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    relay.url = f"http://{host}:{port}"
    async with server:
        yield relay
        relay.down()
