"""Connections: a name is resolved, all its addresses are judged, and one of those is dialled."""

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from typing import Any, cast

import httpcore2

from foundation.egress.addresses import Address
from foundation.egress.decoding import too_large
from foundation.egress.errors import EgressError, Reason
from foundation.egress.hosts import Target, endpoint
from foundation.egress.limits import Limits
from foundation.egress.policy import Policy
from foundation.egress.resolving import Resolver, Unresolved

_ADDRESSES_MAX = 8
"""How many addresses of a name are tried."""


def real_network() -> httpcore2.AsyncNetworkBackend:
    """Connects to addresses; handed a name it would resolve it itself."""
    return cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())


class Dialer(httpcore2.AsyncNetworkBackend):
    """Makes the connections of a pool. The pool gives it the host of a URL, never an address that
    anybody resolved before: there is no moment in which the answer could change."""

    def __init__(
        self,
        policy: Policy,
        resolver: Resolver,
        limits: Limits,
        network: httpcore2.AsyncNetworkBackend,
    ) -> None:
        self._policy = policy
        self._resolver = resolver
        self._limits = limits
        self._network = network

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (the base class's name)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A stream to one of the judged addresses. Raises EgressError."""
        try:
            target = endpoint(host, port)
        except ValueError as error:
            raise EgressError(Reason.HOST, "", str(error)) from None
        deadline = asyncio.get_running_loop().time() + self._limits.connect_seconds
        try:
            async with asyncio.timeout_at(deadline):
                self._policy.admit(target)
                addresses = await self._addresses(target)
                self._policy.judge(target, addresses)
                stream = await self._dial(target, addresses[:_ADDRESSES_MAX])
        except TimeoutError:
            raise _late(target, self._limits) from None
        return _Stream(stream, target, self._limits, deadline)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109  (the base class's name)
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Never: no URL leads to a file."""
        raise EgressError(Reason.SCHEME, "", "only http and https URLs are fetched")

    async def sleep(self, seconds: float) -> None:
        """Between a pool's own attempts."""
        await asyncio.sleep(seconds)

    async def _addresses(self, target: Target) -> Sequence[Address]:
        if target.address is not None:
            return (target.address,)
        try:
            return await self._resolver.resolve(target.host, target.port)
        except Unresolved as error:
            what = (
                f"{error}; check the host in the URL" if error.is_absent else f"{error}; try later"
            )
            raise EgressError(Reason.UNRESOLVED, str(target), what) from None

    async def _dial(
        self, target: Target, addresses: Sequence[Address]
    ) -> httpcore2.AsyncNetworkStream:
        """The first that answers; each gets its part of the time that is there."""
        seconds = self._limits.connect_seconds / len(addresses)
        for address in addresses:
            try:
                return await self._network.connect_tcp(str(address), target.port, seconds)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        message = "nothing answers there; check the URL, or try later"
        raise EgressError(Reason.UNREACHABLE, str(target), message)


class _Stream(httpcore2.AsyncNetworkStream):
    """A connection that counts what comes since the last request was written on it.

    Everything counts: endless headers, interim answers and the framing of chunks take no space
    elsewhere, but time and traffic.
    """

    def __init__(
        self,
        inner: httpcore2.AsyncNetworkStream,
        target: Target,
        limits: Limits,
        deadline: float,
    ) -> None:
        self._inner = inner
        self._target = target
        self._limits = limits
        self._deadline = deadline
        self._received = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        data = await self._inner.read(max_bytes, timeout)
        self._received += len(data)
        if self._received > self._limits.wire_bytes + self._limits.header_bytes:
            raise too_large(str(self._target), self._limits.wire_bytes)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        self._received = 0
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        now = asyncio.get_running_loop().time()
        try:
            inner = await self._inner.start_tls(
                ssl_context, server_hostname, max(0.0, self._deadline - now)
            )
        except httpcore2.ConnectTimeout:
            raise _late(self._target, self._limits) from None
        except (httpcore2.NetworkError, ssl.SSLError) as error:
            message = (
                f"no trusted TLS connection ({_tls_fault(error)}); check the server's certificate"
            )
            raise EgressError(Reason.TLS, str(self._target), message) from None
        return _Stream(inner, self._target, self._limits, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _tls_fault(error: BaseException) -> str:
    """What OpenSSL found wrong, in its own fixed words; nothing that the server wrote."""
    cause = error if isinstance(error, ssl.SSLError) else error.__cause__ or error.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"certificate not accepted, code {cause.verify_code}"
    return "handshake failed"


def _late(target: Target, limits: Limits) -> EgressError:
    message = f"no connection within {limits.connect_seconds:g} s; try later"
    return EgressError(Reason.CONNECT_TIMEOUT, str(target), message)
