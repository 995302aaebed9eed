"""The HTTP surface: routing, credentials, and one Messages request from body to last byte."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from offline_model import delivery
from offline_model.answers import Answer, answer
from offline_model.control import Control
from offline_model.defaults import default_step
from offline_model.errors import ApiError, invalid
from offline_model.gates import Gates
from offline_model.records import Disposition, Record, Recorder
from offline_model.requests import BODY_BYTES_MAX, parse
from offline_model.scripts import ErrorSpec, Step, choose
from offline_model.seals import token
from offline_model.tokens import count
from offline_model.validation import check
from offline_model.windows import Windows, check_media, check_window, too_long

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"


class App:
    """A plain ASGI application. ``scope["offline.transport"]`` is the connection."""

    def __init__(self, record: Path | None, scenarios: Path | None, windows: Windows) -> None:
        self.gates = Gates()
        self.recorder = Recorder(record)
        self._scenarios = scenarios
        self._windows = windows
        self._control = Control(self.gates, self.recorder, windows)
        # Ids may tell repeats apart, also across a restart; nothing else depends on this.
        self._boot = os.urandom(8)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request of any kind."""
        path, method = str(scope["path"]), str(scope["method"])
        exchange = Exchange(scope, receive, send)
        if path == "/healthz":
            await exchange.respond(200, JSON, b'{"status":"ok"}')
        elif path.startswith("/control/"):
            query = bytes(scope["query_string"]).decode()
            status, type, body = await self._control.handle(method, path, query)
            await exchange.respond(status, type, body)
        else:
            await self._api(exchange, method, path)

    async def _api(self, exchange: "Exchange", method: str, path: str) -> None:
        body = await exchange.body()
        headers = exchange.headers
        request_id = "req_011C" + token(self._boot, "request", os.urandom(8), length=20)
        exchange.fixed_headers["request-id"] = request_id
        record = await self.recorder.received(path, headers, body, request_id)
        disposition: Disposition = "disconnected"
        try:
            _check_access(method, path, headers)
            if path == "/v1/messages":
                disposition = await self._messages(exchange, body, record)
            else:
                disposition = await self._count_tokens(exchange, body, record)
        except ApiError as error:
            await exchange.respond(error.status, JSON, error.body_bytes(request_id), error.headers)
            disposition = "disconnected" if exchange.gone.done() else "answered"
        finally:
            record.status = exchange.status
            await self.recorder.finished(record, disposition)
            exchange.close()

    async def _count_tokens(self, exchange: "Exchange", body: bytes, record: Record) -> Disposition:
        request = parse(body)
        record.model = request.model
        check(request, counting=True)
        step = choose(request, self._scenarios).step or Step()
        counted = count(request)
        record.input_tokens = counted.input_tokens
        check_media(counted.media)
        tokens = counted.input_tokens if step.count_tokens is None else step.count_tokens
        value = {"input_tokens": tokens}
        await exchange.respond(200, JSON, msgspec.json.encode(value))
        return "answered"

    async def _messages(self, exchange: "Exchange", body: bytes, record: Record) -> Disposition:
        request = parse(body)
        self.recorder.understood(record, request)
        check(request)
        chosen = choose(request, self._scenarios)
        step = chosen.step or default_step(request)
        record.step = chosen.origin
        counted = count(request)
        record.input_tokens = counted.input_tokens
        check_media(counted.media)
        window = step.window_tokens or self._windows.of(request.model, chosen.window_tokens)
        check_window(counted, request.max_tokens or 0, window)
        if step.times is not None and record.repeat >= step.times:
            step = without_faults(step)
        streamed = request.stream
        plan = delivery.before(step, streamed=streamed)
        if plan:
            exchange.watch()
            result = await delivery.carry_out(plan, _no_body, self.gates, exchange.gone)
            if result == "gone":
                return "disconnected"
        if step.disconnect:
            await exchange.drop()
            return "dropped"
        _raise_fault(step, counted.input_tokens)
        message_id = "msg_01" + token(self._boot, "message", record.seq)
        made = answer(request, step, message_id, counted, record.prefix_bytes)
        if not streamed:
            await exchange.respond(200, JSON, made.whole(), step.headers)
            return "disconnected" if exchange.gone.done() else "answered"
        return await self._stream(exchange, made, record.request_id)

    async def _stream(self, exchange: "Exchange", made: Answer, request_id: str) -> Disposition:
        plan = delivery.streamed(made, request_id)
        headers = {"cache-control": "no-cache", **made.step.headers}
        if any(not isinstance(action, delivery.Bytes) for action in plan):
            exchange.watch()
        await exchange.begin(200, EVENTS, headers)
        result = await delivery.carry_out(plan, exchange.write, self.gates, exchange.gone)
        if result == "done":
            await exchange.end()
            return "answered"
        if result == "reset":
            await exchange.drop()
            return "dropped"
        return "disconnected"


class Exchange:
    """One request and its response; notices when the client is gone, once asked to watch."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self.headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in cast(list[tuple[bytes, bytes]], scope["headers"])
        }
        self.fixed_headers: dict[str, str] = {}
        self.status = 0
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watcher: asyncio.Task[None] | None = None

    async def body(self) -> bytes:
        """The exact body; one byte more than allowed is kept, so that parsing refuses it."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.gone.set_result(None)
                break
            part = bytes(message.get("body", b""))
            if size <= BODY_BYTES_MAX:
                parts.append(part)
                size += len(part)
            if not message.get("more_body", False):
                break
        return b"".join(parts)

    def watch(self) -> None:
        """From now on ``gone`` completes when the client disconnects."""
        if self._watcher is None and not self.gone.done():
            self._watcher = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self.gone.done():
            self.gone.set_result(None)

    async def begin(self, status: int, type: str, headers: Mapping[str, str]) -> None:
        """Sends the status line and the headers."""
        self.status = status
        fields = {"content-type": type, **self.fixed_headers, **headers}
        encoded = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in fields.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def write(self, data: bytes) -> None:
        """Sends a part of the body."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Sends the last part of the body."""
        await self._send({"type": "http.response.body", "body": data})

    async def respond(
        self, status: int, type: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        """Sends a whole response of known length."""
        length = {"content-length": str(len(body))}
        await self.begin(status, type, {**length, **(headers or {})})
        await self.end(body)

    async def drop(self) -> None:
        """Breaks the connection, as a lost network does; returns when it is gone."""
        self.watch()
        cast(asyncio.Transport, self._scope["offline.transport"]).abort()
        await asyncio.wait([self.gone])

    def close(self) -> None:
        """Stops watching."""
        if self._watcher:
            self._watcher.cancel()


async def _no_body(data: bytes) -> None:
    raise AssertionError("nothing is sent before the headers")


def _check_access(method: str, path: str, headers: Mapping[str, str]) -> None:
    if path not in ("/v1/messages", "/v1/messages/count_tokens"):
        raise ApiError(404, "Not found")
    if method != "POST":
        raise ApiError(405, "Method Not Allowed", type="invalid_request_error")
    bearer = headers.get("authorization", "").lower().startswith("bearer ")
    if not bearer and not headers.get("x-api-key"):
        raise ApiError(401, "x-api-key header is required")
    if not headers.get("anthropic-version"):
        raise invalid("anthropic-version: header is required")


def _raise_fault(step: Step, tokens: int) -> None:
    if step.overflow == 413:
        raise ApiError(413)
    if step.overflow == 400:
        raise too_long(tokens, max(0, tokens - 1))
    if step.error:
        raise _scripted(step.error)


def _scripted(spec: ErrorSpec) -> ApiError:
    headers: dict[str, str] = {}
    if spec.retry_after is not None:
        headers["retry-after"] = f"{spec.retry_after:g}"
    if spec.should_retry is not None:
        headers["x-should-retry"] = "true" if spec.should_retry else "false"
    body = spec.body.encode() if spec.body is not None else None
    if body is not None:
        headers["content-type"] = "text/html"
    return ApiError(spec.status, spec.message, type=spec.type, headers=headers, body=body)


def without_faults(step: Step) -> Step:
    """The clean answer of a step, for requests beyond its ``times``."""
    return msgspec.structs.replace(
        step,
        error=None,
        overflow=None,
        disconnect=False,
        stream_error=None,
        cut=None,
        stall=None,
        unknown_delta=False,
        extra_events=[],
    )
