"""The ASGI application: find the route, translate, call, translate back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import grpc
import structlog
from counterfoil.context.v1 import snapshots_pb2
from counterfoil.ledger.v1 import export_pb2, session_pb2
from counterfoil.registry.v1 import agent_pb2, environment_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from google.protobuf.message import Message as Proto
from opentelemetry import trace

from foundation import ids, telemetry
from foundation.errors import Failure, invalid, surface_of
from foundation.idempotency import METADATA
from foundation.json import InvalidJson
from foundation.json.errors import clip
from foundation.rpc.admission import unauthenticated
from gateway import exports, frames, pages
from gateway.answers import Answer, Headers, document, failure_answer, json_answer, unexpected
from gateway.exchange import ClientGoneError, Exchange, Receive, Scope, Send
from gateway.limits import Limiter, Rates
from gateway.observed import Seen
from gateway.retries import Retries
from gateway.routes import BindingError, Match, Route, Table, routes_of
from gateway.streams import PING_SECONDS, EventStream
from gateway.transcoding import Transcoder
from gateway.unsupported import feature_of

CONTRACTS: tuple[Any, ...] = (
    agent_pb2.DESCRIPTOR,
    environment_pb2.DESCRIPTOR,
    session_pb2.DESCRIPTOR,
    snapshots_pb2.DESCRIPTOR,
    export_pb2.DESCRIPTOR,
)
"""The contracts with public services."""

THREADED_BYTES_MIN = 256 * 1024
"""Bodies above this size are decoded in a thread, so that nobody else waits for them."""

_READINESS_SECONDS = 5.0

Channels = Callable[[str], grpc.aio.Channel]
Readiness = Callable[[], Awaitable[dict[str, str | None]]]

_log = structlog.get_logger("counterfoil.gateway")


class Endpoint:
    """A route with its translations and its callable on the owner's channel."""

    def __init__(self, route: Route, channel: grpc.aio.Channel) -> None:
        self.route = route
        self.transcoder = Transcoder(route)
        self.streams = bool(route.method.server_streaming)
        if route.method.client_streaming:
            raise BindingError(f"{route.rpc}: REST has no streams of requests")
        self.exports = self.transcoder.response_type is export_pb2.ExportLedgerResponse
        events = self.transcoder.response_type is session_pb2.StreamEventsResponse
        if self.streams and not (events or self.exports):
            raise BindingError(f"{route.rpc}: only events and exports are streams")
        untyped: Any = channel
        kind = untyped.unary_stream if self.streams else untyped.unary_unary
        self.call: Any = kind(
            route.rpc,
            request_serializer=self.transcoder.request_type.SerializeToString,
            response_deserializer=self.transcoder.response_type.FromString,
            _registered_method=True,
        )


class Gateway:
    """The application. It keeps its open streams, what limits need, and answers that
    nobody could read."""

    def __init__(
        self,
        endpoints: dict[Route, Endpoint],
        readiness: Readiness,
        *,
        exported: Sequence[exports.Following] = (),
        ping_seconds: float = PING_SECONDS,
        rates: Rates | None = None,
    ) -> None:
        self._exported = exported
        self._retries = Retries()
        self._limiter = Limiter(rates or Rates())
        self._endpoints = endpoints
        self._table = Table(endpoints)
        self._readiness = readiness
        self._ping_seconds = ping_seconds
        self._open: set[EventStream] = set()
        self._seen = Seen()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one ASGI scope; only HTTP is spoken here."""
        if scope["type"] != "http":
            raise NotImplementedError(f"no {scope['type']} here")
        exchange = Exchange(scope, receive, send, ids.new("request"))
        parent = _trace_of(exchange)
        with telemetry.span(exchange.method, telemetry.SpanKind.SERVER, parent=parent):
            await self._seen.watch(exchange, self._serve)

    @property
    def open_streams(self) -> int:
        """How many event streams are open."""
        return len(self._open)

    def end_streams(self) -> None:
        """Ends every open stream cleanly; called when the server stops."""
        for stream in tuple(self._open):
            stream.end()

    async def _serve(self, exchange: Exchange) -> None:
        try:
            await self._dispatch(exchange)
        except ClientGoneError:
            return
        except InvalidJson as error:
            await _fail(exchange, invalid(error.path, error.message))
        except Failure as failure:
            await _fail(exchange, failure)
        except Exception as error:
            _log.error("unexpected error", request_id=exchange.request_id, exc_info=error)
            if exchange.started:  # the connection breaks, which says that the answer is not whole
                raise
            await _fail(exchange, unexpected())

    async def _dispatch(self, exchange: Exchange) -> None:
        match = self._table.find(exchange.segments)
        if match is None:
            await exchange.answer(await self._outside_the_contract(exchange))
            return
        verb = "GET" if exchange.method == "HEAD" else exchange.method
        route = match.routes.get(verb)
        if route is None:
            await exchange.answer(_other_method(exchange, match.allowed))
            return
        exchange.route, exchange.subject = route.template, match.values[0] if match.values else ""
        _describe(exchange, route)
        endpoint = self._endpoints[route]
        if not exchange.credential:
            # The service would say the same, but only after the body was read and understood.
            raise unauthenticated()
        if self._limiter.active:
            self._limiter.take(exchange.credential, reads=verb == "GET")
        if endpoint.exports:
            await self._export(exchange, endpoint, match)
        elif endpoint.streams:
            await self._stream(exchange, endpoint, match)
        elif verb == "POST" and not exchange.header(METADATA):
            body = await exchange.body()
            work = partial(_unary, exchange, endpoint, match, body)
            await exchange.answer(await self._retries.answer(exchange, body, work))
        else:
            body = b"" if verb == "GET" else await exchange.body()
            await exchange.answer(await _unary(exchange, endpoint, match, body))

    async def _outside_the_contract(self, exchange: Exchange) -> Answer:
        if exchange.path not in pages.PUBLIC:
            return failure_answer(self._unknown(exchange), exchange.request_id)
        if exchange.method not in ("GET", "HEAD"):
            return _other_method(exchange, ["GET", "HEAD", "OPTIONS"])
        return pages.page(exchange.path, exchange.header("accept")) or await self._ready()

    def _unknown(self, exchange: Exchange) -> Failure:
        feature = feature_of(exchange.path)
        if feature is not None:
            text = f"{feature.name} are not supported: there is no {clip(exchange.path)} here"
            return Failure(reasons.ERROR_REASON_NOT_FOUND, text)
        similar = self._table.similar(exchange.path)
        hint = f"did you mean {' or '.join(similar)}?" if similar else "see GET /openapi.json"
        reason = reasons.ERROR_REASON_NOT_FOUND
        return Failure(reason, f"{clip(exchange.path)} is no path of this API; {hint}")

    async def _ready(self) -> Answer:
        try:
            async with asyncio.timeout(_READINESS_SECONDS):
                found = await self._readiness()
        except TimeoutError:
            found = {"readiness": f"not known after {_READINESS_SECONDS:g} s"}
        failing = {name: text for name, text in found.items() if text is not None}
        if not failing:
            return document(200, {"status": "ready"})
        return document(503, {"status": "not ready", "failing": failing})

    async def _export(self, exchange: Exchange, endpoint: Endpoint, match: Match) -> None:
        request = endpoint.transcoder.request(match.values, exchange.query, b"")
        metadata = exchange.metadata()
        first = endpoint.call(request, metadata=metadata)
        await exports.serve(
            exchange, exports.joined(first, self._exported, match.values[0], metadata)
        )

    async def _stream(self, exchange: Exchange, endpoint: Endpoint, match: Match) -> None:
        session_id = match.values[0]
        bound: dict[str, object] = {}
        last = exchange.header("last-event-id")
        if last:
            bound["position_after"] = frames.position_behind(last, session_id)
        request = endpoint.transcoder.request(match.values, exchange.query, b"", bound)
        stream = EventStream(
            exchange,
            endpoint.call(request, metadata=exchange.metadata()),
            session_id,
            catch_all=exchange.header("x-stainless-package-version").startswith("0."),
            ping_seconds=self._ping_seconds,
        )
        self._open.add(stream)
        try:
            await stream.run()
        finally:
            self._open.discard(stream)


def create_app(
    channels: Channels,
    *,
    readiness: Readiness,
    ping_seconds: float = PING_SECONDS,
    rates: Rates | None = None,
) -> Gateway:
    """The gateway's application.

    `channels` gives the channel to a service by name; its calls carry no credential of their own.
    `readiness` says for each dependency what is wrong with it, None for nothing. `rates` limit how
    often a key may call.
    """
    owners: dict[str, grpc.aio.Channel] = {}
    endpoints: dict[Route, Endpoint] = {}
    for route in routes_of(CONTRACTS):
        if route.owner not in owners:
            owners[route.owner] = channels(route.owner)
        endpoints[route] = Endpoint(route, owners[route.owner])
    exported = exports.following(channels)
    return Gateway(endpoints, readiness, exported=exported, ping_seconds=ping_seconds, rates=rates)


async def _unary(exchange: Exchange, endpoint: Endpoint, match: Match, body: bytes) -> Answer:
    metadata = exchange.metadata()
    translate = endpoint.transcoder.request
    if len(body) > THREADED_BYTES_MIN:
        request = await asyncio.to_thread(translate, match.values, exchange.query, body)
    else:
        request = translate(match.values, exchange.query, body)
    response: Proto = await endpoint.call(request, metadata=metadata)
    return json_answer(200, endpoint.transcoder.response(response))


def _other_method(exchange: Exchange, allowed: list[str]) -> Answer:
    headers: Headers = [(b"allow", ", ".join(allowed).encode())]
    if exchange.method == "OPTIONS":
        return Answer(204, b"", headers)
    what = f"{clip(exchange.method)} is not allowed on {clip(exchange.path)}"
    failure = Failure(
        reasons.ERROR_REASON_METHOD_NOT_ALLOWED, f"{what}; allowed: {', '.join(allowed)}"
    )
    return failure_answer(failure, exchange.request_id, headers)


async def _fail(exchange: Exchange, failure: Failure) -> None:
    if surface_of(failure.reason).http_status >= 500:
        _log.warning(
            "request failed",
            request_id=exchange.request_id,
            path=exchange.path,
            failure=repr(failure),
        )
    await exchange.answer(failure_answer(failure, exchange.request_id))


def _describe(exchange: Exchange, route: Route) -> None:
    span = trace.get_current_span()
    if not span.is_recording():
        return
    span.update_name(f"{route.verb} {route.template}")
    span.set_attribute("http.request.method", exchange.method)
    span.set_attribute("http.route", route.template)
    span.set_attribute("counterfoil.request_id", exchange.request_id)


def _trace_of(exchange: Exchange) -> Any:
    """The client's trace, when it sent one."""
    names = (telemetry.TRACEPARENT, "tracestate")
    return telemetry.extract({name: exchange.header(name) for name in names})
