"""HTTP/1.1 on one connection: uvicorn's, with bounded headers and one write for each answer.

uvicorn writes a response's head at once and its body behind it: two calls of the kernel, which are
the dearest part of a small answer. ASGI lets a server wait for the first piece of the body, and so
does this one; a stream that wants to be answered before its first event writes an empty piece.
"""

import asyncio
import re
from itertools import chain
from typing import Any
from urllib.parse import unquote

import httptools
from counterfoil.types.v1 import error_reason_pb2 as reasons
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from foundation import ids
from foundation.errors import Failure
from gateway.answers import Headers, failure_answer

HEADER_BYTES_MAX = 64 * 1024
"""Bytes of a request's target and headers."""

_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_BODILESS = (204, 304)
_ASGI = {"version": "3.0", "spec_version": "2.3"}


class Protocol(HttpToolsProtocol):
    """One connection. What is not HTTP gets our error body."""

    _header_bytes = 0
    _idle_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client connected. Who it is matters to nobody: addresses are not asked for."""
        self.connections.add(self)
        self.transport = transport
        self.flow = FlowControl(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client left, or we did."""
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        super().connection_lost(exc)

    def timeout_keep_alive_handler(self) -> None:
        """One timer a connection, moved on only when it fires, ends those that idle."""
        now = self.loop.time()
        since = now if self._idle_since is None else self._idle_since
        left = since + self.timeout_keep_alive - now
        if left <= 0:
            self.transport.close()
            return
        self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)

    def on_response_complete(self) -> None:
        """The next request that waits is served, or the connection idles."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def on_message_begin(self) -> None:
        """A request begins; its scope is made when its headers are complete."""
        self._header_bytes = 0
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._count(len(url))
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count(len(name) + len(value))
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The request can be served; behind one that is not answered yet it waits."""
        untyped: Any = self
        parser, app, before = untyped.parser, untyped.app, untyped.cycle
        version: str = parser.get_http_version()
        cycle = self.cycle = Cycle(
            scope=self._scope(version, parser.get_method()),
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, app))

    def send_400_response(self, msg: str) -> None:
        """What came is not HTTP, or too much of it."""
        cycle = getattr(self, "cycle", None)  # none before the first request
        if cycle and cycle.response_started and not cycle.response_complete:
            self.transport.close()
            return
        request_id = ids.new("request")
        text = "the request is no valid HTTP/1.1, or its headers exceed 64 KiB"
        answer = failure_answer(Failure(reasons.ERROR_REASON_INVALID_FIELD, text), request_id)
        headers = [
            *self.server_state.default_headers,
            *answer.headers,
            (b"content-length", str(len(answer.body)).encode()),
            (b"request-id", request_id.encode()),
            (b"connection", b"close"),
        ]
        self.transport.write(_head(400, headers) + b"\r\n" + answer.body)
        self.transport.close()

    def _scope(self, version: str, method: bytes) -> Any:
        target = httptools.parse_url(self.url)
        raw: bytes = target.path
        path = raw.decode("ascii")
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "scheme": "http",
            "method": method.decode("ascii"),
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw,
            "query_string": target.query or b"",
            "headers": self.headers,
        }

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > HEADER_BYTES_MAX:
            raise ValueError("headers are too large")


class Cycle(RequestResponseCycle):
    """One request and its response."""

    _head = b""
    """The head of a response until the first piece of its body is there."""

    async def send(self, message: Any) -> None:
        """Takes the response from the application: its head, then its body in pieces."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            self._begin(message["status"], message["headers"])
        elif self.response_complete:
            raise RuntimeError("the response was sent already")
        else:
            self._continue(message["body"], message["more_body"])

    def _begin(self, status: int, headers: Headers) -> None:
        head = _head(status, self.default_headers, headers)
        self.response_started = True
        self.waiting_for_100_continue = False
        self.chunked_encoding = False
        length = next((value for name, value in headers if name == b"content-length"), None)
        if length is not None:
            self.expected_content_length = int(length)
        elif self.scope["method"] != "HEAD" and status not in _BODILESS:
            self.chunked_encoding = True
            head += b"transfer-encoding: chunked\r\n"
        if not self.keep_alive:
            head += b"connection: close\r\n"
        self._head = head + b"\r\n"

    def _continue(self, body: bytes, more: bool) -> None:
        if self.scope["method"] == "HEAD":
            self.expected_content_length, body = 0, b""
        elif self.chunked_encoding:
            if body:
                body = b"%x\r\n%b\r\n" % (len(body), body)
            if not more:
                body += b"0\r\n\r\n"
        else:
            self.expected_content_length -= len(body)
        if self.expected_content_length < 0 or (self.expected_content_length and not more):
            raise RuntimeError("the body is not as long as it was said to be")
        head, self._head = self._head, b""
        self.transport.write(head + body if head else body)
        if not more:
            self._complete()

    def _complete(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


def _head(status: int, *headers: Headers) -> bytes:
    """The lines of a head, without the empty one behind them."""
    pairs = list(chain(*headers))
    if _CONTROLS.search(b"".join([value for _, value in pairs])):
        raise ValueError("a header's value holds control characters")
    return STATUS_LINE[status] + b"".join([b"%b: %b\r\n" % pair for pair in pairs])
