"""HTTP requests to the provider: exact bytes out, bounded bytes in, every failure named.

What the environment of the process says about proxies, credentials and certificates is ignored:
configuration alone decides. Nothing is logged, nothing is sent twice, no redirect is followed.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Literal

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import ContentEncodingError
from aiohttp.payload import Payload
from yarl import URL

from services.runner.adapter import failures
from services.runner.adapter.connections import Connections
from services.runner.adapter.failures import ProviderFailure

Auth = Literal["x-api-key", "bearer"]

API_VERSION = "2023-06-01"
"""The provider's contract that is spoken."""

ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of one answer as they come, unpacked; streams are several times their content."""

_ERROR_BYTES_MAX = 1024 * 1024
_HEADER_BYTES_MAX = 64 * 1024
_HEADERS_MAX = 512
_PIECE_BYTES = 64 * 1024
_CONNECT_SECONDS = 10.0
_REQUEST_ID_CHARS_MAX = 256


class Transport:
    """One endpoint with its connections; made inside the event loop that uses it."""

    def __init__(self, base_url: str, api_key: str, auth: Auth) -> None:
        """Raises ValueError when the address or the key cannot be used."""
        if not api_key:
            raise ValueError("the model provider needs a key")
        if not (api_key.isascii() and api_key.isprintable() and api_key == api_key.strip()):
            raise ValueError("the model provider's key holds characters that no header can")
        self._url = _messages_url(base_url)
        self._session = aiohttp.ClientSession(
            connector=Connections(tls=self._url.scheme == "https"),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                **({"authorization": f"Bearer {api_key}"} if auth == "bearer" else {}),
                **({"x-api-key": api_key} if auth == "x-api-key" else {}),
                "accept": "application/json",
                "accept-encoding": "identity",
                "anthropic-version": API_VERSION,
                "content-type": "application/json",
                "user-agent": f"counterfoil/{version('counterfoil')}",
            },
            max_field_size=_HEADER_BYTES_MAX,
            max_line_size=_HEADER_BYTES_MAX,
            max_headers=_HEADERS_MAX,
        )

    async def open(
        self,
        body: bytes,
        read_seconds: float,
        betas: Sequence[str] = (),
        *,
        counting: bool = False,
    ) -> "Response":
        """Send the exact bytes; returns a 2xx response whose body is still to be read, and closed.

        `read_seconds` is the longest silence, now and while the body is read; `betas` are named in
        the `anthropic-beta` header; `counting` sends them to be counted, not answered. Raises
        ProviderFailure.
        """
        try:
            answered = await self._session.post(
                self._url / "count_tokens" if counting else self._url,
                data=_Body(body, read_seconds),
                headers={"anthropic-beta": ",".join(betas)} if betas else None,
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=_CONNECT_SECONDS, sock_read=read_seconds
                ),
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise _unanswered(error, read_seconds) from error
        response = Response(answered, read_seconds)
        if 200 <= answered.status < 300:
            return response
        try:
            raise await _refusal(answered, response)
        finally:
            response.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


class Response:
    """The answer to one request: its headers are there, its body comes."""

    def __init__(self, answered: aiohttp.ClientResponse, read_seconds: float) -> None:
        self._answered = answered
        self._content = answered.content
        self._read_seconds = read_seconds
        self.size = 0
        """Bytes of the body that were read."""

    @property
    def request_id(self) -> str:
        """The provider's id of the request; empty if it sent none."""
        headers = self._answered.headers
        found = headers.get("request-id") or headers.get("x-request-id") or ""
        # Bytes that are no UTF-8 come as surrogates, which no message could hold.
        return found[:_REQUEST_ID_CHARS_MAX].encode(errors="replace").decode()

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of events, whatever was asked for."""
        return self._answered.headers.get("content-type", "").lower().startswith(_EVENT_STREAM)

    @property
    def ended(self) -> bool:
        """Whether nothing of the body is left to be read."""
        return self._content.at_eof()

    async def some(self) -> bytes:
        """The next bytes of the body, as many as are there; empty at its end.

        Raises ProviderFailure.
        """
        try:
            found = await self._content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise _broken(error, self._read_seconds) from error
        self.size += len(found)
        if self.size > ANSWER_BYTES_MAX:
            raise failures.bad_answer("it is too large", retryable=False)
        return found

    async def rest(self) -> bytes:
        """The body from here to its end. Raises ProviderFailure."""
        found: list[bytes] = []
        while some := await self.some():
            found.append(some)
        return b"".join(found)

    def close(self) -> None:
        """Close the connection, unless the body has ended: then it is free for the next request."""
        if not self._answered.closed:
            self._answered.close()


_EVENT_STREAM = "text/event-stream"


class _Body(Payload):
    """The request's bytes. The client waits for an answer as long as it is told, but for a peer
    that takes nothing it would wait for ever."""

    def __init__(self, value: bytes, patience: float) -> None:
        super().__init__(value, content_type="application/json")
        self._size = len(value)
        self._bytes = value
        self._patience = patience

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The bytes as text."""
        return self._bytes.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write all of it. Raises TimeoutError when the peer takes none of it for too long."""
        body = memoryview(self._bytes)
        for at in range(0, len(body), _PIECE_BYTES):
            async with asyncio.timeout(self._patience):
                await writer.write(body[at : at + _PIECE_BYTES])


def _messages_url(base_url: str) -> URL:
    url = URL(base_url)
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("the model provider's address must begin with http:// or https://")
    if url.user or url.password or url.query_string or url.fragment:
        raise ValueError("the model provider's address must be a host and a path, nothing else")
    return URL(f"{base_url.rstrip('/')}/v1/messages")


def _unanswered(error: Exception, read_seconds: float) -> ProviderFailure:
    """What ended the request before the headers of an answer."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return failures.unreachable()
        case TimeoutError():
            return failures.silent(read_seconds)
        case aiohttp.ClientResponseError():
            return failures.bad_answer("it is not HTTP as we know it")
        case _:
            return failures.unreachable()


def _broken(error: Exception, read_seconds: float) -> ProviderFailure:
    """What ended the body of an answer."""
    if isinstance(error, TimeoutError):
        return failures.silent(read_seconds)
    if isinstance(error.__cause__, ContentEncodingError):
        return failures.bad_answer("it is not what its headers say")
    return failures.truncated()


async def _refusal(answered: aiohttp.ClientResponse, response: Response) -> ProviderFailure:
    """The failure behind a status that is not 2xx, with as much of its body as can be read."""
    read = b""
    try:
        while len(read) < _ERROR_BYTES_MAX and (some := await response.some()):
            read += some
    except ProviderFailure:
        pass  # the status has come, and decides
    text = read.decode(errors="replace").strip()
    try:
        body: object = json.loads(text)
    except (ValueError, RecursionError):
        body = text
    failure = failures.of_response(answered.status, body, answered.headers, now=time.time())
    failure.provider_request_id = response.request_id
    return failure
