"""A stream in process: at most one response ahead, in order, and it ends when either side does."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from counterfoil.ledger.v1 import session_pb2
from google.protobuf.message import Message

from foundation import errors
from foundation.errors import Failure
from foundation.rpc.local import LocalStream


class Source:
    """Responses 0, 1, … and what happened to their generator."""

    def __init__(self, count: int, *, waits: bool = False, breaks: bool = False) -> None:
        self.count, self.waits, self.breaks = count, waits, breaks
        self.made = 0
        self.closed = asyncio.Event()

    async def responses(self) -> AsyncGenerator[Message]:
        try:
            for position in range(self.count):
                if self.waits:
                    await asyncio.sleep(0.001)
                self.made += 1
                yield session_pb2.StreamEventsResponse(position_through=position)
            if self.breaks:
                raise errors.wrong_state("it broke")
            if self.waits:
                await asyncio.sleep(30)
        finally:
            self.closed.set()


async def _read(stream: AsyncIterator[Message], count: int) -> list[int]:
    read: list[int] = []
    for _ in range(count):
        response = await anext(stream)
        assert isinstance(response, session_pb2.StreamEventsResponse)
        read.append(response.position_through)
    return read


async def _turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("waits", [False, True])
async def test_a_reader_gets_everything_in_order(waits: bool) -> None:
    source = Source(50, waits=waits)
    stream = LocalStream(source.responses())
    assert await _read(stream, 50) == list(range(50))
    stream.cancel()


async def test_the_servicer_is_one_response_ahead_at_most() -> None:
    source = Source(50)
    stream = LocalStream(source.responses())
    await _turns()
    assert source.made == 2  # one that is left for the reader, one that waits behind it
    await _read(stream, 3)
    await _turns()
    assert source.made == 5
    stream.cancel()


async def test_a_failure_comes_behind_the_responses_and_ends_the_stream() -> None:
    stream = LocalStream(Source(2, breaks=True).responses())
    await _turns()
    assert await _read(stream, 2) == [0, 1]
    with pytest.raises(Failure, match="it broke"):
        await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_reader_that_is_cancelled_while_it_waits_ends_the_stream() -> None:
    source = Source(1, waits=True)
    stream = LocalStream(source.responses())
    reader = asyncio.create_task(_read(stream, 2))
    await asyncio.sleep(0.02)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    await asyncio.wait_for(source.closed.wait(), 5)


async def test_cancelling_wakes_whoever_waits() -> None:
    source = Source(0, waits=True)
    stream = LocalStream(source.responses())
    reader = asyncio.create_task(_read(stream, 1))
    await _turns()
    assert stream.cancel()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(reader, 5)
    await asyncio.wait_for(source.closed.wait(), 5)
    assert not stream.cancel()
