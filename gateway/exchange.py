"""One HTTP request and its response, over the raw ASGI callables."""

from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any
from urllib.parse import unquote_to_bytes

from counterfoil.types.v1 import error_reason_pb2 as reasons
from opentelemetry import trace

from foundation.errors import Failure, invalid
from foundation.idempotency import HEADER, METADATA, checked
from foundation.rpc.admission import API_KEY, AUTHORIZATION, credential_of
from foundation.rpc.pipeline import REQUEST_ID
from gateway.answers import Answer, Headers

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Coroutine[Any, Any, Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_BYTES_MAX = 32 * 1024 * 1024
"""Largest body of a request."""


class ClientGoneError(Exception):
    """The client closed the connection before it had sent everything; nobody reads an answer."""


class Exchange:
    """One request on its way through the gateway. Every response carries its `request_id`."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        self._receive = receive
        self._send = send
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._first = dict(reversed(self._headers))
        """The first header of each name."""
        self._scope = scope
        self.request_id = request_id
        self.method: str = scope["method"]
        self.query: bytes = scope["query_string"]
        self.started = False
        self.status = 0
        self.route = ""
        """Template of the route that was found; empty for an unknown path."""
        self.subject = ""
        """What stands where the route has its first id, whether or not it is one."""
        self._credential: str | None = None

    @property
    def path(self) -> str:
        """The decoded path, for people."""
        return self._scope["path"]

    @property
    def segments(self) -> list[str]:
        """The path's segments, split before they are decoded: `%2F` is no slash.

        Broken UTF-8 survives as lone surrogates, which the codec refuses by field.
        """
        raw: bytes = self._scope.get("raw_path") or self._scope["path"].encode()
        if b"%" not in raw:
            return raw.decode("utf-8", "surrogateescape").split("/")[1:]
        parts = raw.split(b"/")[1:]
        return [unquote_to_bytes(part).decode("utf-8", "surrogateescape") for part in parts]

    def header(self, name: str) -> str:
        """The first header of this lower-case name; empty when there is none."""
        value = self._first.get(name.encode())
        return value.decode("latin-1") if value else ""

    def metadata(self) -> list[tuple[str, str]]:
        """What goes along with the call: the client's own credential and the request id.

        gRPC carries printable ASCII only; a credential beyond that is nobody's and stays behind.
        """
        credential = self.credential
        found = [(REQUEST_ID, self.request_id)]
        if credential:
            found.append((AUTHORIZATION, f"Bearer {credential}"))
        if self.method == "POST":
            found.extend(self._idempotency())
        return found

    def _idempotency(self) -> list[tuple[str, str]]:
        """The key of this request, if it has one; raises INVALID_FIELD."""
        wanted = METADATA.encode()
        if wanted not in self._first:
            return []
        keys = {value for name, value in self._headers if name == wanted}
        if len(keys) > 1:
            raise invalid(HEADER, "came more than once")
        return [(METADATA, checked(key.decode("latin-1"))) for key in keys]

    @property
    def credential(self) -> str:
        """The credential that goes along; empty for none."""
        if self._credential is None:
            names = (AUTHORIZATION, API_KEY)
            found = credential_of({name: self.header(name) for name in names})
            self._credential = found if found.isascii() and found.isprintable() else ""
        return self._credential

    @property
    def target(self) -> bytes:
        """Path and query as they were sent."""
        raw: bytes = self._scope.get("raw_path") or self._scope["path"].encode()
        return b"?".join((raw, self.query))

    def left(self) -> bool:
        """Whether the client is known to have closed the connection; asks once the body was read.

        The server tells that at once or not yet: nothing is waited for.
        """
        asking = self._receive()
        try:
            asking.send(None)
        except StopIteration as told:
            return told.value["type"] == "http.disconnect"
        asking.close()
        return False

    async def body(self) -> bytes:
        """The whole body; raises TOO_LARGE as soon as it is known to be, and ClientGoneError."""
        declared = self.header("content-length")
        if declared.isdecimal() and int(declared) > BODY_BYTES_MAX:
            raise _too_large()
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > BODY_BYTES_MAX:
                raise _too_large()
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunk if len(chunks) == 1 else b"".join(chunks)

    async def gone(self) -> None:
        """Waits until the client closes the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(self, answer: Answer) -> None:
        """Sends a whole response; HEAD gets its headers only."""
        headers = answer.headers
        if answer.status != 204:
            headers = [*headers, (b"content-length", b"%d" % len(answer.body))]
        await self.start(answer.status, headers)
        await self.write(b"" if self.method == "HEAD" else answer.body, more=False)

    async def start(self, status: int, headers: Headers) -> None:
        """Sends status and headers at once."""
        self.started = True
        self.status = status
        span = trace.get_current_span()
        if span.is_recording():
            span.set_attribute("http.response.status_code", status)
            if status >= 500:
                span.set_status(trace.StatusCode.ERROR)
        headers = [*headers, (b"request-id", self.request_id.encode())]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, body: bytes, *, more: bool) -> None:
        """Sends a piece of the response, or with `more=False` its last one."""
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


def _too_large() -> Failure:
    return Failure(
        reasons.ERROR_REASON_TOO_LARGE, f"the body is larger than {BODY_BYTES_MAX} bytes"
    )
