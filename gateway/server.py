"""Serves the application over HTTP.

uvicorn with httptools: it runs inside our event loop, next to the services of an embedded process.
"""

import asyncio
import socket
from dataclasses import dataclass
from typing import Any

import uvicorn

from gateway.app import Gateway
from gateway.protocol import Protocol

_STOP_SECONDS = 2
_KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep idle connections, so that none is closed under a request."""

_UNREAD_MS_MAX = 30_000
"""A peer that takes nothing for this long is disconnected by the kernel."""

_BACKLOG = 2048


class AddressError(OSError):
    """The address cannot be listened on; the text says which, and which setting chooses it."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    port: int
    _app: Gateway
    _server: uvicorn.Server
    _socket: socket.socket
    _running: "asyncio.Task[None]"

    async def stop(self) -> None:
        """Ends open streams, lets other requests finish for at most 2 s, then closes."""
        self._app.end_streams()
        self._server.should_exit = True
        await self._running
        await self._server.shutdown(sockets=[self._socket])
        left = list(self._server.server_state.connections)
        for connection in left:
            connection.transport.abort()
        await asyncio.gather(*self._server.server_state.tasks, return_exceptions=True)


async def serve(app: Gateway, host: str, port: int) -> Server:
    """Serves `app` inside the running event loop; port 0 takes any free one.

    Signals stay with the caller. Raises AddressError when the address is taken or is not ours.
    """
    listening = await _listen(host, port)
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="off",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    config.load()
    server = uvicorn.Server(config)
    # The parts of `uvicorn.Server.serve` without its signal handlers, and ready on return.
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listening])
    running = asyncio.create_task(server.main_loop(), name="gateway")
    return Server(listening.getsockname()[1], app, server, listening, running)


async def _listen(host: str, port: int) -> socket.socket:
    where = f"{host}:{port}"
    hint = "set COUNTERFOIL_PORT (COUNTERFOIL_HOST for the address) to another one"
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        return _bound(socket.socket(family, kind, protocol), address)
    except OSError as error:
        why = error.strerror or str(error)
        raise AddressError(error.errno, f"REST cannot listen on {where}: {why}; {hint}") from error


def _bound(listening: socket.socket, address: Any) -> socket.socket:
    """Connections inherit these options."""
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Without this, an event waits for the acknowledgement of the one before.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS_MAX)
        listening.bind(address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
