"""Exports: the streams of the authorities one behind the other, as they come.

The bytes are theirs. Only the last line is made here: it digests all the others, so that whoever
reads them knows that they are whole.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

import grpc
from counterfoil.context.v1 import export_pb2 as context_pb2
from counterfoil.files.v1 import export_pb2 as files_pb2
from counterfoil.journal.v1 import export_pb2 as journal_pb2
from counterfoil.transcript.v1 import export_pb2 as transcript_pb2

from gateway.answers import Headers, unexpected
from gateway.exchange import Exchange

_HEADERS: Headers = [
    (b"content-type", b"application/x-ndjson"),
    (b"cache-control", b"no-store"),
]
_FOLLOWING = (
    ("transcript", "Transcript", transcript_pb2),
    ("journal", "Journal", journal_pb2),
    ("context", "Context", context_pb2),
    ("files", "Files", files_pb2),
)

Channels = Callable[[str], grpc.aio.Channel]
Metadata = Sequence[tuple[str, str]]


class Following(NamedTuple):
    """The export of an authority that is asked behind the ledger."""

    request: Any
    call: Any


def following(channels: Channels) -> list[Following]:
    """The authorities in the order of their lines."""
    return [_following(channels(owner), name, contract) for owner, name, contract in _FOLLOWING]


def _following(channel: Any, name: str, contract: Any) -> Following:
    request = getattr(contract, f"Export{name}Request")
    call = channel.unary_stream(
        f"/counterfoil.{name.lower()}.v1.{name}ExportService/Export{name}",
        request_serializer=request.SerializeToString,
        response_deserializer=getattr(contract, f"Export{name}Response").FromString,
        _registered_method=True,
    )
    return Following(request, call)


async def joined(
    first: Any, others: Sequence[Following], session_id: str, metadata: Metadata | None
) -> AsyncGenerator[bytes]:
    """The whole export, in pieces; the first one is empty and says that there is one.

    `first` is the ledger's running stream. Raises Failure, also in the middle.
    """
    running, digest, lines = first, hashlib.sha256(), 0
    try:
        opened = await anext(running, None)
        if opened is None:
            raise unexpected()
        yield b""
        for other in (None, *others):
            if other is not None:
                request = other.request(session_id=session_id, cut=opened.cut)
                running = other.call(request, metadata=metadata)
            async for response in running:
                digest.update(response.lines)
                lines += response.lines.count(b"\n")
                yield response.lines
    finally:
        running.cancel()
    end = f'{{"type":"export.end","v":1,"lines":{lines},"sha256":"{digest.hexdigest()}"}}\n'
    yield end.encode()


async def serve(exchange: Exchange, pieces: AsyncGenerator[bytes]) -> None:
    """Answers with an export. Raises Failure before anything was sent; what breaks it later breaks
    the connection, which says that the answer is not whole."""
    async with aclosing(pieces):
        await anext(pieces)
        await exchange.start(200, _HEADERS)
        if exchange.method != "HEAD":
            await exchange.write(b"", more=True)
            async for piece in pieces:
                await exchange.write(piece, more=True)
        await exchange.write(b"", more=False)
