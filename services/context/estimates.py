"""How many tokens something takes, without asking the provider. Pure.

Text is taken at three bytes a token, rounded up: a token is hardly ever shorter. Media have rules
of their own, because their base64 length says nothing: an image costs by its pixels, a document by
its pages.
"""

import msgspec

from foundation.artifacts import IMAGE_BASE64_MAX
from services.context.reducer import BlockHead

BYTES_PER_TOKEN = 3
IMAGE_TOKENS = 1_600
"""What the largest image costs after the provider has scaled it down."""

_PAGE_BYTES = 40_000
_PAGE_TOKENS = 4_600


class Media(msgspec.Struct, frozen=True):
    """Media in a block: how many of its bytes are no text, and what they cost instead."""

    bytes: int = 0
    tokens: int = 0


NO_MEDIA = Media()


class _Source(msgspec.Struct):
    type: str = ""
    data: msgspec.Raw = msgspec.Raw()


class _WithSource(msgspec.Struct):
    source: _Source = msgspec.field(default_factory=_Source)


_WITH_SOURCE = msgspec.json.Decoder(_WithSource)


def text_tokens(length: int) -> int:
    """Of so many bytes of text."""
    return -(-length // BYTES_PER_TOKEN)


def media_of(block: bytes, head: BlockHead) -> Media:
    """Media of one content block of an input."""
    if head.type == "image":
        return Media(len(block), IMAGE_TOKENS)
    if head.type != "document":
        return NO_MEDIA
    try:
        source = _WITH_SOURCE.decode(block).source
    except msgspec.DecodeError:
        return NO_MEDIA
    if source.type != "base64":
        return NO_MEDIA
    length = len(source.data)
    return Media(length, document_tokens(length * 3 // 4))


def is_refused(block: bytes, head: BlockHead) -> bool:
    """Whether a block is an image that no provider takes for its size."""
    if head.type != "image" or len(block) <= IMAGE_BASE64_MAX:
        return False
    try:
        source = _WITH_SOURCE.decode(block).source
    except msgspec.DecodeError:
        return False
    return source.type == "base64" and len(source.data) - len(b'""') > IMAGE_BASE64_MAX


def document_tokens(length: int) -> int:
    """Of a document of so many bytes: of its pages, as text and as image each."""
    return max(1, -(-length // _PAGE_BYTES)) * _PAGE_TOKENS
