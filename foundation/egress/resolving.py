"""Names to addresses, within a time of ours."""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, Protocol, cast

import pycares

from foundation.egress.addresses import Address

_TRY_SECONDS = 2.0
_TRIES = 2
_ABSENT = frozenset({1, 4})
"""ARES_ENODATA and ARES_ENOTFOUND, whose numbers are part of the interface of c-ares."""


class Unresolved(Exception):
    """No address was learned. `is_absent` tells whether that was the answer."""

    def __init__(self, *, is_absent: bool) -> None:
        super().__init__("the name does not exist" if is_absent else "no name server answered")
        self.is_absent = is_absent


class Resolver(Protocol):
    """What the guard asks for the addresses of a name."""

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        """All addresses of `host`, the best first. Raises Unresolved."""
        ...

    def close(self) -> None:
        """Give up what it holds."""
        ...


class SystemResolver:
    """Asks the name servers of /etc/resolv.conf, and /etc/hosts before them.

    By c-ares, not by getaddrinfo: that one blocks a thread for as long as a name server lets it
    wait, and whoever chooses the name chooses the server.
    """

    def __init__(self, servers: Sequence[str] | None = None, udp_port: int | None = None) -> None:
        self._options: dict[str, Any] = {"timeout": _TRY_SECONDS, "tries": _TRIES}
        if servers is not None:
            self._options |= {"servers": servers}
        if udp_port is not None:
            self._options |= {"udp_port": udp_port, "tcp_port": udp_port}
        self._channel: pycares.Channel | None = None

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        """All addresses of both families, in the order of RFC 6724."""
        if self._channel is None:
            self._channel = pycares.Channel(**self._options)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[Address]] = loop.create_future()

        def settle(result: pycares.AddrInfoResult | None, error: int | None) -> None:
            if answer.done():
                return  # nobody waits any more
            if result is None:
                answer.set_exception(Unresolved(is_absent=error in _ABSENT))
            else:
                answer.set_result(_addresses(result))

        def on_thread(result: pycares.AddrInfoResult | None, error: int | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result, error)

        self._channel.getaddrinfo(
            host, port, family=socket.AF_UNSPEC, type=socket.SOCK_STREAM, callback=on_thread
        )
        return await answer

    def close(self) -> None:
        """Ends every question that is still open."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _addresses(result: pycares.AddrInfoResult) -> list[Address]:
    found: list[Address] = []
    for node in result.nodes:
        raw = cast("tuple[str | bytes, int]", node.addr)[0]  # pyright: ignore[reportUnknownMemberType]  (an open tuple)
        found.append(ip_address(raw.decode("ascii") if isinstance(raw, bytes) else raw))
    return found
