"""Runs one event stream: subscribe, send frames as they come, ping when silent, stop at once."""

import asyncio
from contextlib import suppress
from typing import Protocol, cast

from counterfoil.ledger.v1 import session_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from gateway import frames
from gateway.answers import Headers, failure_body, unexpected
from gateway.exchange import ClientGoneError, Exchange

PING_SECONDS = 10.0
"""Silence after which a ping is sent; proxies drop silent connections after 15 s and more."""

_SUBSCRIBE_SECONDS = 30.0
_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Responses(Protocol):
    """A running RPC: what channels give for a stream of responses."""

    async def __anext__(self) -> object:
        """The next response; raises Failure, or StopAsyncIteration at the end."""
        ...

    def cancel(self) -> bool:
        """Ends the RPC."""
        ...


class EventStream:
    """One open stream. The consumer's speed is the RPC's: nothing piles up here."""

    def __init__(
        self,
        exchange: Exchange,
        responses: Responses,
        session_id: str,
        *,
        catch_all: bool = False,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        self._exchange = exchange
        self._responses = responses
        self._session_id = session_id
        self._catch_all = catch_all
        self._ping_seconds = ping_seconds
        self._loop = asyncio.get_running_loop()
        self._ending = False
        self._gone = False
        self._wrote = False
        self._writing = False
        self._written_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._pinging: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serves the stream until its end.

        Raises Failure before anything was sent; later failures become an `error` event.
        """
        watch = asyncio.ensure_future(self._exchange.gone())
        watch.add_done_callback(self._left)
        try:
            first = await self._subscribed()
            await self._exchange.start(200, _HEADERS)
            if self._exchange.method != "HEAD":
                await self._exchange.write(b"", more=True)  # heads travel with what follows them
                self._arm(self._ping_seconds)
                await self._deliver(first)
            self._rest()
            await self._exchange.write(b"", more=False)
        finally:
            watch.cancel()
            self._rest()
            self._responses.cancel()

    def end(self) -> None:
        """Ends the stream as its server stops: clients see a clean end and come back."""
        self._ending = True
        self._responses.cancel()

    def _left(self, watch: "asyncio.Task[None]") -> None:
        if not watch.cancelled():
            self._gone = True
            self.end()

    async def _subscribed(self) -> session_pb2.StreamEventsResponse:
        """The first response, which says that the subscription is active."""
        try:
            async with asyncio.timeout(_SUBSCRIBE_SECONDS):
                first = await self._next()
        except TimeoutError:
            reason = reasons.ERROR_REASON_DEADLINE_EXCEEDED
            raise Failure(reason, "the subscription took too long") from None
        if first is not None:
            return first
        if self._gone:
            raise ClientGoneError
        if self._ending:
            raise Failure(reasons.ERROR_REASON_UNAVAILABLE, "the server is stopping")
        raise unexpected()

    async def _deliver(self, response: session_pb2.StreamEventsResponse | None) -> None:
        try:
            while response is not None:
                batch = frames.render(response.frames, self._session_id, catch_all=self._catch_all)
                if response.end and not batch and not self._wrote:
                    batch = frames.PING
                if batch:
                    await self._write(batch)
                if response.end:
                    return
                response = await self._next()
        except Failure as failure:
            body = failure_body(failure, self._exchange.request_id)
            await self._write(frames.error(body))

    async def _next(self) -> session_pb2.StreamEventsResponse | None:
        """The next response; None at the end, also when we ended it."""
        try:
            return cast(session_pb2.StreamEventsResponse, await self._responses.__anext__())
        except StopAsyncIteration:
            return None
        except (Failure, asyncio.CancelledError):
            if self._ending:  # a cancelled RPC ends differently on each kind of channel
                return None
            raise

    async def _write(self, batch: bytes) -> None:
        self._wrote = self._writing = True
        try:
            await self._exchange.write(batch, more=True)
        finally:
            self._writing = False
            self._written_at = self._loop.time()

    def _arm(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        """One timer a stream, moved on only when it fires, keeps pings out of the hot path."""
        silent_for = self._loop.time() - self._written_at
        if self._writing:  # a full buffer: what waits in it will be heard
            self._arm(self._ping_seconds)
        elif silent_for < self._ping_seconds:
            self._arm(self._ping_seconds - silent_for)
        else:
            self._pinging = asyncio.ensure_future(self._ping())
            self._arm(self._ping_seconds)

    async def _ping(self) -> None:
        with suppress(OSError):  # a lost connection is reported by `gone`
            await self._write(frames.PING)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._pinging is not None:
            self._pinging.cancel()
