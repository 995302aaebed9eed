"""The `anthropic` client as a transport of raw bytes. Importing this takes over a second.

Only its requests, connections and errors are used. What the environment of the process says about
proxies, credentials, headers and traced content is ignored: configuration alone decides.
"""

import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import Literal

import anthropic
import httpx2

from services.runner.adapter import failures
from services.runner.adapter.failures import ProviderFailure

Auth = Literal["x-api-key", "bearer"]

ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of one answer as they come over the wire; streams are several times their content."""

_CONNECT_SECONDS = 10.0
_KEEPALIVE_SECONDS = 4.0
_REQUEST_ID_CHARS_MAX = 256


class Transport(anthropic.AsyncAnthropic):
    """One client with its connections. Nothing is retried and no redirect is followed."""

    def __init__(self, base_url: str, api_key: str, auth: Auth) -> None:
        if not api_key:
            raise ValueError("the model provider needs a key")
        self._auth = auth
        self._key = api_key
        limits = httpx2.Limits(max_keepalive_connections=64, keepalive_expiry=_KEEPALIVE_SECONDS)
        super().__init__(
            auth_token=api_key,
            base_url=base_url,
            max_retries=0,
            # Not None: then the environment could put content into spans.
            open_telemetry={},
            http_client=httpx2.AsyncClient(
                transport=_Bounded(limits=limits, trust_env=False),
                trust_env=False,
                follow_redirects=False,
            ),
        )
        self._custom_headers = {}
        # At debug level the client would log requests, which hold what users wrote.
        logging.getLogger("anthropic").setLevel(logging.INFO)

    @property
    def auth_headers(self) -> dict[str, str]:
        """The one header that carries the credential."""
        if self._auth == "bearer":
            return {"Authorization": f"Bearer {self._key}"}
        return {"X-Api-Key": self._key}

    async def open(
        self, body: bytes, read_seconds: float, betas: Sequence[str] = ()
    ) -> httpx2.Response:
        """Send the exact bytes; returns a 2xx response whose body is still to be read, and closed.

        `read_seconds` is the longest silence, now and while the body is read; `betas` are named in
        the `anthropic-beta` header. Raises ProviderFailure.
        """
        headers = {"Accept-Encoding": "identity"}
        if betas:
            headers["anthropic-beta"] = ",".join(betas)
        timeout = httpx2.Timeout(read_seconds, connect=_CONNECT_SECONDS, pool=None)
        try:
            stream = await self.post(
                "/v1/messages",
                cast_to=object,
                content=body,
                options={"timeout": timeout, "headers": headers},
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            )
            return stream.response
        except Exception as error:
            raise failure_of(error, read_seconds, begun=False) from error


def request_id_of(response: httpx2.Response) -> str:
    """The provider's id of the request; empty if it sent none."""
    found = response.headers.get("request-id") or response.headers.get("x-request-id") or ""
    return found[:_REQUEST_ID_CHARS_MAX]


def is_stream(response: httpx2.Response) -> bool:
    """Tell whether the body is a stream of events, whatever was asked for."""
    return response.headers.get("content-type", "").lower().startswith("text/event-stream")


async def frames(response: httpx2.Response) -> AsyncIterator[tuple[str | None, bytes]]:
    """The frames of a stream: event name (None without one) and exact data."""
    async for event in anthropic.AsyncStream[object].raw_events(response):
        if event.event is not None or event.data:
            yield event.event, event.data.encode()


def failure_of(error: Exception, read_seconds: float, *, begun: bool) -> ProviderFailure:
    """The failure behind whatever the client raised; `begun`: the answer's headers were there."""
    failure: ProviderFailure
    match error:
        case ProviderFailure():
            failure = error
        case anthropic.APIStatusError():
            headers = error.response.headers
            failure = failures.of_response(error.status_code, error.body, headers, now=time.time())
            failure.provider_request_id = request_id_of(error.response)
        case anthropic.APIConnectionError():
            cause = error.__cause__
            waited = isinstance(cause, (httpx2.ReadTimeout, httpx2.WriteTimeout))
            failure = failures.silent(read_seconds) if waited else failures.unreachable()
        case httpx2.TimeoutException():
            failure = failures.silent(read_seconds)
        case httpx2.TransportError():
            failure = failures.truncated() if begun else failures.unreachable()
        case UnicodeDecodeError() | httpx2.DecodingError():
            failure = failures.bad_answer("it is not what its headers say")
        case _:
            raise error
    return failure


class _Bounded(httpx2.AsyncHTTPTransport):
    """Connections whose responses end with a failure when they do not end by themselves."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        return httpx2.Response(
            status_code=response.status_code,
            headers=response.headers,
            stream=_BoundedStream(response.stream),
            extensions=response.extensions,
        )


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = ANSWER_BYTES_MAX
        async for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                raise failures.bad_answer("it is too large", retryable=False)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
