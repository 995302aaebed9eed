"""The stream that a runner holds: hello, claims, heartbeats, releases."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import structlog
from counterfoil.ledger.v1 import turn_pb2

from foundation.errors import invalid
from foundation.storage import Unavailable
from services.ledger import claiming
from services.ledger.dispatcher import Dispatcher
from services.ledger.lanes import Lanes
from services.ledger.streams import RunnerStream, key_of

_log = structlog.get_logger("counterfoil.ledger.attach")


class Attachments:
    """Serves runner streams."""

    def __init__(self, lanes: Lanes, dispatcher: Dispatcher) -> None:
        self._lanes = lanes
        self._dispatcher = dispatcher

    async def attach(
        self, requests: AsyncIterator[turn_pb2.AttachRequest]
    ) -> AsyncGenerator[turn_pb2.AttachResponse]:
        """The responses of one stream; it ends when the runner's side ends."""
        hello = await _hello(requests)
        stream = self._dispatcher.attach(hello.runner_name, 0)
        reader: asyncio.Task[None] | None = None
        try:
            kept = [claim for claim in hello.held if await self._keep(stream, claim)]
            stream.capacity = hello.capacity
            attached = turn_pb2.Attached(
                stream_id=stream.id, lease_ttl_ms=self._lanes.lease_ms, kept=kept
            )
            yield turn_pb2.AttachResponse(attached=attached)
            self._dispatcher.opened()
            reader = asyncio.create_task(self._read(stream, requests), name="ledger-attach")
            async with aclosing(_until(stream, reader)) as responses:
                async for response in responses:
                    yield response
        finally:
            # First: a stream may be cancelled twice, and the second time lands in the await below.
            self._dispatcher.lose(stream)
            if reader is not None:
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)

    async def _keep(self, stream: RunnerStream, claim: turn_pb2.HeldClaim) -> bool:
        thread = claim.thread
        kept = False
        async with self._lanes.change(
            "ledger.keep_claim", thread.workspace_id, thread.session_id
        ) as change:
            if change is not None and change.lane.thread_ref == thread:
                kept = claiming.keep(change.lane, claim.epoch, stream.id)
        if kept:
            stream.held[key_of(thread)] = claim.epoch
        return kept

    async def _read(
        self, stream: RunnerStream, requests: AsyncIterator[turn_pb2.AttachRequest]
    ) -> None:
        async for request in requests:
            try:
                match request.WhichOneof("message"):
                    case "heartbeat":
                        await self._dispatcher.heartbeat(stream)
                        answer = turn_pb2.AttachResponse(heartbeat=request.heartbeat)
                        stream.outgoing.put_nowait(answer)
                    case "release":
                        await self._dispatcher.releases.take(stream, request.release)
                    case _:
                        raise invalid("message", "a stream says hello once")
            except Unavailable:
                # No answer to the beat: the runner counts the time that is left by its own clock.
                _log.warning("the ledger's database is not reachable", runner=stream.runner_name)


async def _hello(requests: AsyncIterator[turn_pb2.AttachRequest]) -> turn_pb2.AttachHello:
    async for request in requests:
        if request.WhichOneof("message") == "hello":
            return request.hello
        break
    raise invalid("message", "the first message of a stream must be hello")


async def _until(
    stream: RunnerStream, reader: "asyncio.Task[None]"
) -> AsyncGenerator[turn_pb2.AttachResponse]:
    """What goes out, until the incoming side has ended; its error, if that was one."""
    while True:
        getting = asyncio.ensure_future(stream.outgoing.get())
        try:
            await asyncio.wait((getting, reader), return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                reader.result()
                return
            response = getting.result()
        finally:
            getting.cancel()
        yield response
