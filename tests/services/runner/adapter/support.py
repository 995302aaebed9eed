"""Requests that make the offline model answer as a test wants, and frames of a stream."""

import json
from collections.abc import Iterable, Mapping

import msgspec

from services.runner.adapter.assemble import Answer, Assembly, Piece
from services.runner.adapter.messages import MessagesAdapter


def body(*steps: object, stream: bool = True) -> bytes:
    """A request whose answer these steps describe; a step in bytes is exact JSON."""
    texts = [step.decode() if isinstance(step, bytes) else json.dumps(step) for step in steps]
    message = {"role": "user", "content": f"offline-script: [{','.join(texts)}]"}
    request = {"model": "m", "max_tokens": 100, "stream": stream, "messages": [message]}
    return json.dumps(request).encode()


async def ask(adapter: MessagesAdapter, *steps: object, stream: bool = True) -> Answer:
    return await adapter.call(body(*steps, stream=stream), stream=stream, on_piece=ignore)


def ignore(_: Piece) -> None:
    """Nobody watches."""


def frame(type_: str, **members: bytes) -> tuple[str, bytes]:
    """One event; its members are JSON already."""
    parts = [b'"type":"%s"' % type_.encode()]
    parts += [b'"%s":%s' % (name.encode(), raw) for name, raw in members.items()]
    return type_, b"{%s}" % b",".join(parts)


def start(index: int, block: bytes) -> tuple[str, bytes]:
    return frame("content_block_start", index=b"%d" % index, content_block=block)


def delta(index: int, **members: object) -> tuple[str, bytes]:
    raw = msgspec.json.encode(members)
    return frame("content_block_delta", index=b"%d" % index, delta=raw)


BEGIN = frame("message_start", message=b'{"id":"msg_1","content":[],"stop_reason":null}')
END = frame("message_stop")


def assembled(*frames: tuple[str, bytes], begin: tuple[str, bytes] = BEGIN) -> Answer:
    """The answer of a complete stream with these frames in it."""
    assembly = Assembly("req_1")
    for event, data in (begin, *frames, END):
        assembly.feed(event, data)
    return assembly.answer()


def pieces(frames: Iterable[tuple[str, bytes]]) -> list[Piece]:
    assembly = Assembly()
    return [piece for event, data in frames for piece in assembly.feed(event, data)]


def object_of(members: Mapping[str, bytes]) -> bytes:
    return b"{%s}" % b",".join(b'"%s":%s' % (k.encode(), v) for k, v in members.items())
