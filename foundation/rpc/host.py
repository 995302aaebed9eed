"""Serves registered servicers: to local stubs directly, to everybody else over gRPC."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from typing import Any

import grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons
from google.protobuf import descriptor_pool
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from foundation.errors import Failure
from foundation.rpc.admission import Admission
from foundation.rpc.local import LocalChannel
from foundation.rpc.pipeline import Method, Pipeline, ReplaysOf
from foundation.rpc.remote import MESSAGE_BYTES_MAX
from foundation.rpc.status import DETAILS_KEY, code_of, details_of

_STOP_SECONDS = 2.0


class Host:
    """All services of one process."""

    def __init__(self, admission: Admission, replays: ReplaysOf = lambda _: None) -> None:
        self._pipeline = Pipeline(admission, replays)
        self._methods: dict[str, Method] = {}
        self._handlers: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
        self._server: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()

    def register(self, add: Callable[[Any, Any], None], servicer: object) -> None:
        """Serves `servicer`; `add` is the generated `add_…Servicer_to_server`."""
        add(servicer, self)

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Called by generated code; the registered handlers below say the same."""

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]
    ) -> None:
        """Called by generated code: takes the methods of one service."""
        pool: Any = descriptor_pool.Default()
        descriptor = pool.FindServiceByName(service)
        for name, handler in handlers.items():
            path = f"/{service}/{name}"
            method = Method.of(path, descriptor.methods_by_name[name], _behaviour(handler))
            self._methods[path] = method
            self._handlers.setdefault(service, {})[name] = self._socket_handler(method, handler)

    def serves(self, service: str) -> bool:
        """Whether a service (`counterfoil.ledger.v1.TurnService`) is registered here."""
        return service in self._handlers

    def channel(self, credential: str = "") -> grpc.aio.Channel:
        """A channel to everything that is registered here, now or later."""
        return LocalChannel(self._find, credential).as_channel()

    def _find(self, path: str) -> tuple[Pipeline, Method]:
        method = self._methods.get(path)
        if method is None:
            raise Failure(reasons.ERROR_REASON_UNAVAILABLE, f"nobody serves {path} here")
        return self._pipeline, method

    async def listen(self, address: str) -> int:
        """Serves on `host:port` (port 0 for any); returns the port. Raises OSError when it is
        taken."""
        server = grpc.aio.server(
            options=[
                ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
                ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
                # A client that is stopped or cut off is noticed in seconds, not hours.
                ("grpc.keepalive_time_ms", 10_000),
                ("grpc.keepalive_timeout_ms", 5_000),
                ("grpc.http2.ping_timeout_ms", 5_000),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.max_pings_without_data", 0),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
                ("grpc.so_reuseport", 0),
            ]
        )
        for service, handlers in self._handlers.items():
            generic = grpc.method_handlers_generic_handler(service, handlers)
            server.add_generic_rpc_handlers((generic,))
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (*self._handlers, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        try:
            port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error
        await server.start()
        self._server = server
        return port

    async def set_serving(self, serving: bool) -> None:
        """Says through the health service whether this process can do its work."""
        status = health_pb2.HealthCheckResponse
        value = status.SERVING if serving else status.NOT_SERVING
        for service in ("", *self._handlers):
            await self._health.set(service, value)

    async def stop(self) -> None:
        """Stops listening; running calls get a moment."""
        if self._server is not None:
            await self._health.enter_graceful_shutdown()
            await self._server.stop(_STOP_SECONDS)
            self._server = None

    def _socket_handler(
        self, method: Method, handler: "grpc.RpcMethodHandler[Any, Any]"
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        make: Any
        if handler.response_streaming:
            served = self._serve_stream(method)
            many = handler.request_streaming
            make = (
                grpc.stream_stream_rpc_method_handler
                if many
                else grpc.unary_stream_rpc_method_handler
            )
        else:
            served = self._serve_unary(method)
            make = grpc.unary_unary_rpc_method_handler
        return make(
            served,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _serve_unary(self, method: Method) -> Callable[[Message, Any], Any]:
        async def serve(request: Message, context: Any) -> Message:
            try:
                return await self._pipeline.unary(
                    method, request, _metadata(context), context.time_remaining()
                )
            except Failure as failure:
                await _abort(context, failure)
                raise

        return serve

    def _serve_stream(self, method: Method) -> Callable[[Any, Any], Any]:
        async def serve(
            request: Message | AsyncIterable[Message], context: Any
        ) -> AsyncIterator[Message]:
            try:
                async for response in self._pipeline.streaming(
                    method, request, _metadata(context), context.time_remaining()
                ):
                    yield response
            except Failure as failure:
                await _abort(context, failure)

        return serve


def _behaviour(handler: "grpc.RpcMethodHandler[Any, Any]") -> Callable[..., Any]:
    found: Callable[..., Any] | None = (
        handler.unary_unary or handler.unary_stream or handler.stream_stream or handler.stream_unary
    )
    if found is None:
        raise ValueError("a handler without behaviour")
    return found


def _metadata(context: Any) -> dict[str, str]:
    pairs: list[tuple[str, str | bytes]] = list(context.invocation_metadata() or ())
    return {key: value for key, value in pairs if isinstance(value, str)}


async def _abort(context: Any, failure: Failure) -> None:
    details = ((DETAILS_KEY, details_of(failure)),)
    await context.abort(code_of(failure), failure.message, details)
