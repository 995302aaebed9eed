"""A real gRPC channel that behaves like the in-process one: same metadata, same deadlines, same
`Failure`."""

from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from foundation.rpc import outgoing
from foundation.rpc.status import failure_of

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""Requests of a large context travel whole; REST bodies are limited to half of this."""

_HEALTH_SECONDS = 2.0

_OPTIONS = [
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A service that restarts is found again within a second, not after gRPC's default of minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Execute calls must never be repeated by a transport.
    ("grpc.enable_retries", 0),
]


class RemoteChannel:
    """Stands where generated stubs expect a `grpc.aio.Channel`. Calls raise `Failure`."""

    def __init__(self, address: str, credential: str = "") -> None:
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self._common = outgoing.bearer(credential)

    def as_channel(self) -> grpc.aio.Channel:
        """This channel as the type that stubs ask for; they use no more than it has."""
        return cast(grpc.aio.Channel, self)

    async def health(self) -> str | None:
        """None when the other side says that it serves, else what is wrong."""
        stub: Any = health_pb2_grpc.HealthStub(self._channel)
        try:
            found = await stub.Check(health_pb2.HealthCheckRequest(), timeout=_HEALTH_SECONDS)
        except grpc.aio.AioRpcError as error:
            return error.code().name.lower()
        serving = health_pb2.HealthCheckResponse.SERVING
        return None if found.status == serving else "not serving"

    async def close(self) -> None:
        """Cancels what runs and closes the connection."""
        await self._channel.close()

    def unary_unary(self, path: str, *args: Any, **kwargs: Any) -> Any:
        """A callable for one request and one response."""
        callable_ = self._channel.unary_unary(path, *args, **kwargs)

        async def call(
            request: Message,
            *,
            timeout: float | None = None,  # noqa: ASYNC109  (the name that stubs pass)
            metadata: outgoing.Metadata | None = None,
        ) -> Message:
            carried = tuple(outgoing.metadata(self._common, metadata).items())
            try:
                return await callable_(request, timeout=outgoing.seconds(timeout), metadata=carried)
            except grpc.aio.AioRpcError as error:
                raise failure_of(error) from error

        return call

    def unary_stream(self, path: str, *args: Any, **kwargs: Any) -> Any:
        """A callable for one request and a stream of responses."""
        callable_ = self._channel.unary_stream(path, *args, **kwargs)

        def call(
            request: Message,
            *,
            timeout: float | None = None,
            metadata: outgoing.Metadata | None = None,
        ) -> "RemoteStream":
            carried = tuple(outgoing.metadata(self._common, metadata).items())
            return RemoteStream(callable_(request, timeout=timeout, metadata=carried))

        return call

    def stream_stream(self, path: str, *args: Any, **kwargs: Any) -> Any:
        """A callable for a stream of requests and a stream of responses."""
        callable_ = self._channel.stream_stream(path, *args, **kwargs)

        def call(
            requests: AsyncIterator[Message],
            *,
            timeout: float | None = None,
            metadata: outgoing.Metadata | None = None,
        ) -> "RemoteStream":
            carried = tuple(outgoing.metadata(self._common, metadata).items())
            return RemoteStream(callable_(requests, timeout=timeout, metadata=carried))

        return call

    def stream_unary(self, path: str, *args: Any, **kwargs: Any) -> Any:
        """Passed through: no contract of ours uses it."""
        return self._channel.stream_unary(path, *args, **kwargs)


class RemoteStream:
    """A running stream: iterate it, or cancel it."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._responses = call.__aiter__()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self._responses.__anext__()
        except grpc.aio.AioRpcError as error:
            raise failure_of(error) from error

    def cancel(self) -> bool:
        """Ends the stream. False when it had ended."""
        return bool(self._call.cancel())
