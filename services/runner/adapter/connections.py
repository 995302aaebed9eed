"""Connections to the provider: kept for a few seconds, checked before they are used again."""

import select
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from foundation.trust import verifying

_KEEPALIVE_SECONDS = 4.0


class Connections(aiohttp.TCPConnector):
    """As many connections as there are requests.

    One that the provider has closed, or on which it has sent what nobody asked for, never gets a
    request: the client itself only knows what the event loop has already read.
    """

    def __init__(self, *, tls: bool) -> None:
        context = verifying() if tls else True
        super().__init__(  # pyright: ignore[reportUnknownMemberType]  (an open tuple in its types)
            limit=0, keepalive_timeout=_KEEPALIVE_SECONDS, ssl=context
        )
        self._seen: WeakSet[ResponseHandler] = WeakSet()

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  (the base class's name)
    ) -> Connection:
        """A fresh connection, or a kept one that is silent and open."""
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            assert protocol is not None
            if protocol not in self._seen:
                # Not looked at: TLS may send tickets on it before anything is asked.
                self._seen.add(protocol)
                return connection
            if not _has_spoken(protocol):
                return connection
            connection.close()


def _has_spoken(protocol: ResponseHandler) -> bool:
    """Tell whether anything, or the end, came on a connection that nobody uses."""
    if protocol.transport is None or protocol.should_close:
        return True
    poll = select.poll()
    poll.register(protocol.transport.get_extra_info("socket"), select.POLLIN)
    return bool(poll.poll(0))
