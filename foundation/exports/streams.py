"""Streams of lines: cut into chunks for the way, joined again, counted and digested."""

import hashlib
from collections.abc import AsyncIterable, AsyncIterator
from typing import NamedTuple, Protocol

from counterfoil.types.v1.export_pb2 import ExportCut
from counterfoil.types.v1.reference_pb2 import ThreadRef

from foundation.errors import Failure
from foundation.exports.forms import HEX, INT
from foundation.exports.lines import (
    LINE_BYTES_MAX,
    Line,
    at_line,
    damaged,
    kind_of,
    line,
    refused,
)

_CHUNK_BYTES = 1 << 18


class ImportRequest(Protocol):
    """What every service's import is sent."""

    @property
    def thread(self) -> ThreadRef:
        """With the first message: what is imported."""
        ...

    @property
    def cut(self) -> ExportCut:
        """With the first message: where the export was cut."""
        ...

    @property
    def lines(self) -> bytes:
        """A piece of the stream."""
        ...


class Begin(NamedTuple):
    """What an import is about."""

    thread: ThreadRef
    cut: ExportCut


class _Seal:
    """Counts and digests lines."""

    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.sha256()

    def add(self, body: bytes) -> None:
        self.count += 1
        self._hash.update(body)
        self._hash.update(b"\n")

    def line(self, service: str) -> bytes:
        """The line that ends the stream."""
        digest = HEX.write("sha256", self._hash.digest())
        return line(f"{service}.end", [*INT.write("lines", self.count), *digest])


async def chunks(service: str, lines: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """A service's lines as pieces of some hundred KB, with the line that ends them."""
    seal, waiting, size = _Seal(), list[bytes](), 0
    async for one in lines:
        seal.add(one)
        waiting += (one, b"\n")
        size += len(one) + 1
        if size >= _CHUNK_BYTES:
            joined = b"".join(waiting)
            waiting, size = [], 0
            for at in range(0, len(joined), _CHUNK_BYTES):
                yield joined[at : at + _CHUNK_BYTES]
    yield b"".join([*waiting, seal.line(service), b"\n"])


async def received(
    service: str, requests: AsyncIterator[ImportRequest]
) -> tuple[Begin, AsyncIterator[Line]]:
    """What an import is about, and its lines, which end without error only if all of them came."""
    try:
        first = await anext(requests)
    except StopAsyncIteration:
        raise refused("an import begins with what it is about", "thread") from None
    return Begin(first.thread, first.cut), _checked(service, _pieces(requests))


async def _pieces(requests: AsyncIterator[ImportRequest]) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request.lines


async def _checked(service: str, pieces: AsyncIterator[bytes]) -> AsyncIterator[Line]:
    seal, ended = _Seal(), False
    async for body in _split(pieces):
        number = seal.count + 1
        if ended:
            raise at_line(damaged("a line stands behind the one that ends its stream"), number)
        try:
            kind = kind_of(body)
        except Failure as failure:
            raise at_line(failure, number) from None
        if kind == f"{service}.end":
            ended = True
            if body != seal.line(service):
                raise at_line(damaged("the lines are not those that were exported"), number)
            continue
        seal.add(body)
        yield Line(number, kind, body)
    if not ended:
        raise damaged(f"the lines of the {service} end before their last one")


async def _split(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    waiting = bytearray()
    async for piece in pieces:
        begin = len(waiting)
        waiting += piece
        end = waiting.find(b"\n", begin)
        start = 0
        while end >= 0:
            yield bytes(waiting[start:end])
            start = end + 1
            end = waiting.find(b"\n", start)
        del waiting[:start]
        if len(waiting) > LINE_BYTES_MAX:
            raise damaged(f"a line is longer than {LINE_BYTES_MAX} bytes")
    if waiting:
        raise damaged("the last line has no end")
