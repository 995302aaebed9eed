"""HTTP over the guard, in the form that httpx and the MCP SDK take."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import httpcore2
import httpx2

from foundation.egress.decoding import ACCEPT_ENCODING, Decoder, too_large
from foundation.egress.dialing import Dialer
from foundation.egress.errors import EgressError, Reason
from foundation.egress.hosts import Target
from foundation.egress.limits import Limits
from foundation.egress.targets import target_of

DEADLINE = "counterfoil.egress.deadline"
"""Extension of a request: when its exchange must have ended, in the loop's time."""

_CONNECTIONS_MAX = 100
_KEPT_MAX = 20
_KEPT_SECONDS = 15.0
_NO_BODY = frozenset({204, 304})


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends one request at a time of its caller's, follows no redirect, keeps no cookie.

    Whatever goes wrong is an `EgressError`, also while a body is read. The timeouts of the client
    do not count; `limits` do.
    """

    def __init__(
        self,
        dialer: Dialer,
        limits: Limits,
        tls: ssl.SSLContext,
        on_error: Callable[[EgressError], None],
    ) -> None:
        self.limits = limits
        self._on_error = on_error
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=_CONNECTIONS_MAX,
            max_keepalive_connections=_KEPT_MAX,
            keepalive_expiry=_KEPT_SECONDS,
            network_backend=dialer,
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer's head; its body comes when it is read. Raises EgressError."""
        try:
            target = target_of(request.url)
            deadline = self._deadline(request)
            with _Translating(target, self.limits):
                async with asyncio.timeout_at(deadline):
                    response = await self._pool.handle_async_request(self._outgoing(request))
            return await self._accepted(request, response, target, deadline)
        except EgressError as error:
            self._on_error(error)
            raise

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pool.aclose()

    def _deadline(self, request: httpx2.Request) -> float | None:
        given = request.extensions.get(DEADLINE)
        if given is not None or self.limits.total_seconds is None:
            return given
        return asyncio.get_running_loop().time() + self.limits.total_seconds

    def _outgoing(self, request: httpx2.Request) -> httpcore2.Request:
        """The request as the pool takes it: its Host is that of the URL, whatever it said."""
        headers = request.headers.copy()
        headers["host"] = request.url.netloc.decode("ascii")
        headers["accept-encoding"] = ACCEPT_ENCODING
        limits = self.limits
        timeout = {
            "connect": limits.connect_seconds,
            "pool": limits.connect_seconds,
            "read": limits.idle_seconds,
            "write": limits.idle_seconds,
        }
        return httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=headers.raw,
            content=request.stream,
            extensions={"timeout": timeout},
        )

    async def _accepted(
        self,
        request: httpx2.Request,
        response: httpcore2.Response,
        target: Target,
        deadline: float | None,
    ) -> httpx2.Response:
        """The answer without its compression, if its head promises nothing that we do not take."""
        headers = httpx2.Headers(response.headers)
        host = str(target)
        try:
            has_body = request.method != "HEAD" and response.status not in _NO_BODY
            encoding = headers.get("content-encoding", "") if has_body else ""
            decoder = Decoder(encoding, self.limits, host)
            _check_length(headers, self.limits, host)
            if response.status // 100 == 2 and has_body:
                _check_media_type(headers, self.limits, host)
        except EgressError:
            await response.aclose()
            raise
        if encoding:
            del headers["content-encoding"]
            headers.pop("content-length", None)
        body = _Body(response, decoder, target, self.limits, deadline, self._on_error)
        return httpx2.Response(response.status, headers=headers, stream=body)


class _Body(httpx2.AsyncByteStream):
    """A body, decompressed and counted as it comes."""

    def __init__(
        self,
        response: httpcore2.Response,
        decoder: Decoder,
        target: Target,
        limits: Limits,
        deadline: float | None,
        on_error: Callable[[EgressError], None],
    ) -> None:
        self._response = response
        self._decoder = decoder
        self._target = target
        self._limits = limits
        self._deadline = deadline
        self._on_error = on_error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = self._response.aiter_stream()
        try:
            while (chunk := await self._next(chunks)) is not None:
                for piece in self._decoder.feed(chunk):
                    yield piece
            self._decoder.end()
        except EgressError as error:
            self._on_error(error)
            raise
        finally:
            await chunks.aclose()

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        with _Translating(self._target, self._limits):
            async with asyncio.timeout_at(self._deadline):
                return await anext(chunks, None)

    async def aclose(self) -> None:
        # The other side may have gone already; what was read of it is judged where it is read.
        with suppress(httpcore2.NetworkError, httpcore2.ProtocolError):
            await self._response.aclose()


class _Translating:
    """Makes the errors of the library and of the clock one of ours; the library's own text may
    quote what the other side wrote."""

    def __init__(self, target: Target, limits: Limits) -> None:
        self._host = str(target)
        self._limits = limits

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        found = self._translated(error)
        if found is not None:
            raise found from None

    def _translated(self, error: BaseException | None) -> EgressError | None:
        match error:
            case httpcore2.ConnectTimeout() | httpcore2.PoolTimeout():
                seconds = self._limits.connect_seconds
                return self._error(Reason.CONNECT_TIMEOUT, f"no connection within {seconds:g} s")
            case httpcore2.TimeoutException():
                seconds = self._limits.idle_seconds
                return self._error(Reason.TIMEOUT, f"silent for {seconds:g} s; try later")
            case TimeoutError():
                return self._error(Reason.TIMEOUT, "the answer took too long; try later")
            case httpcore2.ConnectError():
                return self._error(Reason.UNREACHABLE, "nothing answers there; try later")
            case httpcore2.NetworkError():
                return self._error(Reason.BROKEN, "the connection broke; try later")
            case httpcore2.ProtocolError():
                what = "the answer is cut off, is no HTTP, or has headers that are too large"
                return self._error(Reason.PROTOCOL, what)
            case _:
                return None

    def _error(self, reason: Reason, message: str) -> EgressError:
        return EgressError(reason, self._host, message)


def _check_length(headers: httpx2.Headers, limits: Limits, host: str) -> None:
    """Refuses a body that says itself that it is too large."""
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > limits.wire_bytes:
        raise too_large(host, limits.wire_bytes)


def _check_media_type(headers: httpx2.Headers, limits: Limits, host: str) -> None:
    """Refuses a body of a type that the caller does not take, or of none."""
    if not limits.media_types:
        return
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    family = kind.partition("/")[0] + "/*"
    if kind not in limits.media_types and family not in limits.media_types:
        taken = ", ".join(limits.media_types)
        message = f"the answer is of a type that is not taken here; taken are {taken}"
        raise EgressError(Reason.MEDIA_TYPE, host, message)
