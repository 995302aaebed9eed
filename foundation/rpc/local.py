"""The in-process channel: generated stubs call servicers through the pipeline, without sockets.

Messages are copied on the way in and out, so that neither side can change what the other holds.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message

from foundation.rpc import outgoing
from foundation.rpc.apart import Apart
from foundation.rpc.pipeline import Method, Pipeline

M = TypeVar("M", bound=Message)

Lookup = Callable[[str], tuple[Pipeline, Method]]
"""Finds the served method of a path like `/counterfoil.ledger.v1.TurnService/Attach`."""


class LocalChannel:
    """Stands where generated stubs expect a `grpc.aio.Channel`. Calls raise `Failure`."""

    def __init__(self, lookup: Lookup, credential: str = "") -> None:
        self._lookup = lookup
        self._common = outgoing.bearer(credential)

    def as_channel(self) -> grpc.aio.Channel:
        """This channel as the type that stubs ask for; they use no more than it has."""
        return cast(grpc.aio.Channel, self)

    def unary_unary(self, path: str, *_: object, **__: object) -> Any:
        """A callable for one request and one response."""

        async def call(
            request: Message,
            *,
            timeout: float | None = None,  # noqa: ASYNC109  (the name that stubs pass)
            metadata: outgoing.Metadata | None = None,
        ) -> Message:
            pipeline, method = self._lookup(path)
            carried = outgoing.metadata(self._common, metadata)
            seconds = outgoing.seconds(timeout)
            # Apart, as over a socket: the servicer's context must not be the caller's.
            served = pipeline.unary(method, copy(request), carried, seconds)
            return copy(await Apart(served))

        return call

    def unary_stream(self, path: str, *_: object, **__: object) -> Any:
        """A callable for one request and a stream of responses."""

        def call(
            request: Message,
            *,
            timeout: float | None = None,
            metadata: outgoing.Metadata | None = None,
        ) -> "LocalStream":
            return self._stream(path, copy(request), timeout, metadata)

        return call

    def stream_stream(self, path: str, *_: object, **__: object) -> Any:
        """A callable for a stream of requests and a stream of responses."""

        def call(
            requests: AsyncIterable[Message],
            *,
            timeout: float | None = None,
            metadata: outgoing.Metadata | None = None,
        ) -> "LocalStream":
            return self._stream(path, _copied(requests), timeout, metadata)

        return call

    def stream_unary(self, path: str, *_: object, **__: object) -> Any:
        """No contract of ours streams requests only; stubs still ask at construction."""

        def call(*_: object, **__: object) -> None:
            raise ValueError(f"{path}: client streaming is not offered in process")

        return call

    def _stream(
        self,
        path: str,
        request: Message | AsyncIterable[Message],
        timeout: float | None,
        metadata: outgoing.Metadata | None,
    ) -> "LocalStream":
        pipeline, method = self._lookup(path)
        carried = outgoing.metadata(self._common, metadata)
        return LocalStream(pipeline.streaming(method, request, carried, timeout))


class LocalStream:
    """A running stream: iterate it, or cancel it.

    The servicer runs in a task of its own, one response ahead at most: cancelling reaches it
    wherever it waits, and its context is its own.
    """

    def __init__(self, responses: AsyncGenerator[Message]) -> None:
        self._left: deque[Message | BaseException | None] = deque(maxlen=1)
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._ended = False
        self._task = asyncio.ensure_future(self._run(responses))
        self._task.add_done_callback(lambda _: _wake(self._reader))

    async def _run(self, responses: AsyncGenerator[Message]) -> None:
        try:
            async for response in responses:
                await self._leave(copy(response))
            await self._leave(None)
        except Exception as error:
            await self._leave(error)
        finally:
            await responses.aclose()

    async def _leave(self, item: Message | BaseException | None) -> None:
        """Puts an item where the reader finds it, once the one before is taken."""
        while self._left:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer
        self._left.append(item)
        _wake(self._reader)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        if self._ended:
            raise StopAsyncIteration
        try:
            got = await self._next()
        except BaseException:
            self.cancel()
            raise
        if isinstance(got, BaseException):
            self._ended = True
            raise got
        if got is None:
            self._ended = True
            raise StopAsyncIteration
        return got

    async def _next(self) -> Message | BaseException | None:
        """The next item; the end, when the servicer's task was cancelled without leaving one."""
        while not self._left:
            if self._task.done():
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        item = self._left.popleft()
        _wake(self._writer)
        return item

    def cancel(self) -> bool:
        """Ends the stream; the servicer's iterator is closed. False when it had ended."""
        self._ended = True
        return self._task.cancel()


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def copy(message: M) -> M:
    """A copy that shares nothing."""
    duplicate = type(message)()
    duplicate.CopyFrom(message)
    return duplicate


async def _copied(messages: AsyncIterable[Message]) -> AsyncIterator[Message]:
    async for message in messages:
        yield copy(message)
