"""How many tokens a request is: the one rule, for answers, counts and the window. Pure.

Text is a quarter of the bytes of `system`, `tools` and `messages` as they were sent. The base64 of
images and of PDF documents is not text: an image is width times height by 750 after it was scaled
to what a model looks at, a PDF page is its text and its picture.
"""

from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct

from offline_model.media import image_size, pdf_pages
from offline_model.requests import Block, Request, nested, source_blocks, text_of

BYTES_PER_TOKEN = 4
IMAGE_TOKENS_MAX = 1600
IMAGE_EDGE_MAX = 1568
"""Pixels; a longer edge is scaled down before anything is counted."""
PIXELS_PER_TOKEN = 750
PAGE_TOKENS = 1500 + IMAGE_TOKENS_MAX


class Medium(Struct):
    """An image or a document in a request.

    `where` is its path as the API names it; `start` and `end` are the place of its base64 in the
    bytes of `messages`, equal for one that is named and not sent.
    """

    where: str
    kind: str
    sent: bool
    tokens: int
    start: int = 0
    end: int = 0
    width: int = 0
    height: int = 0
    pages: int = 0

    @property
    def encoded_bytes(self) -> int:
        """Characters of its base64, without the quotes around it."""
        return max(0, self.end - self.start - 2)


class Counted(Struct):
    """The count of one request."""

    input_tokens: int
    media: list[Medium]

    def prefix(self, messages_bytes: int) -> int:
        """Tokens of the first bytes of `messages`; a medium counts when it is there as a whole."""
        whole = [one for one in self.media if one.end <= messages_bytes]
        text = messages_bytes - sum(one.end - one.start for one in whole)
        for one in self.media:
            if one.start < messages_bytes < one.end:
                text -= messages_bytes - one.start
        tokens = text // BYTES_PER_TOKEN + sum(one.tokens for one in whole)
        return min(tokens, self.input_tokens)


def count(request: Request) -> Counted:
    """Counts a request that could be parsed."""
    media = list(_located(request.region, _media(request)))
    text = len(request.region) - sum(one.end - one.start for one in media)
    text += sum(len(bytes(request.members.get(name, Raw()))) for name in ("system", "tools"))
    tokens = -(-text // BYTES_PER_TOKEN) + sum(one.tokens for one in media)
    return Counted(max(1, tokens), media)


def image_tokens(width: int, height: int) -> int:
    """Tokens of an image of this size in pixels."""
    scale = min(1.0, IMAGE_EDGE_MAX / max(width, height, 1))
    pixels = int(width * scale) * int(height * scale)
    return min(IMAGE_TOKENS_MAX, max(1, -(-pixels // PIXELS_PER_TOKEN)))


class _Source(Struct):
    type: str = ""
    data: Raw = Raw()


def _media(request: Request) -> Iterator[tuple[Medium, bytes]]:
    """Every medium in order, with the JSON that it is found by: its base64, else its source."""
    for index, message in enumerate(request.messages):
        if not isinstance(message.content, str):
            yield from _in_blocks(message.content, f"messages.{index}.content")


def _in_blocks(blocks: list[Block], path: str) -> Iterator[tuple[Medium, bytes]]:
    for place, block in enumerate(blocks):
        where = f"{path}.{place}.{block.type}"
        if block.type in ("image", "document"):
            source = _source(block.source)
            if source.type == "content":
                yield from _in_blocks(source_blocks(block), f"{where}.source.content")
            elif source.type != "text":
                found = _medium(block.type, f"{where}.source.{source.type}", source)
                yield found, bytes(source.data if source.type == "base64" else block.source)
        elif block.type == "tool_result":
            yield from _in_blocks(nested(block), f"{where}.content")


def _source(raw: Raw) -> _Source:
    try:
        return msgspec.json.decode(raw, type=_Source)
    except msgspec.DecodeError:
        return _Source()


def _medium(kind: str, where: str, source: _Source) -> Medium:
    sent = source.type == "base64"
    encoded = text_of(source.data) if sent else ""
    if kind == "document":
        pages = pdf_pages(encoded)
        return Medium(where, kind, sent, pages * PAGE_TOKENS, pages=pages)
    size = image_size(encoded)
    if size is None:
        return Medium(where, kind, sent, IMAGE_TOKENS_MAX)
    return Medium(where, kind, sent, image_tokens(*size), width=size[0], height=size[1])


def _located(region: bytes, found: Iterator[tuple[Medium, bytes]]) -> Iterator[Medium]:
    at = 0
    for medium, data in found:
        medium.start = medium.end = at = _find(region, data, at)
        if medium.sent:
            medium.end = at = at + len(data)
        yield medium


def _find(region: bytes, data: bytes, at: int) -> int:
    """Where `data` is in `region`, behind `at`; by its beginning, because it may be megabytes."""
    head = data[:64]
    place = region.index(head, at)
    while region[place : place + len(data)] != data:
        place = region.index(head, place + 1)
    return place
