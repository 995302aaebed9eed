"""Lines: their encoding, and why one is refused."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure, invalid

VERSION = 1
"""Of every line that is written."""

LINE_BYTES_MAX = 256 * 2**20
"""Largest line: an entry's or an artifact's bytes as base64, with room."""

Pair = tuple[str, bytes]
"""A member's name and its JSON."""

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)


class Line(NamedTuple):
    """A line that was read: its number in its stream from 1, its type, and its bytes."""

    number: int
    kind: str
    body: bytes


def refused(message: str, path: str = "") -> Failure:
    """A line is not what this version writes."""
    return invalid(path, message)


def at_line(failure: Failure, number: int) -> Failure:
    """The failure, with the line that it is about."""
    return Failure(
        failure.reason,
        failure.message,
        path=failure.path,
        metadata={**failure.metadata, "line": str(number)},
    )


def damaged(message: str) -> Failure:
    """A stream is not whole, or was changed."""
    return Failure(reasons.ERROR_REASON_INVALID_FIELD, message)


def text(value: str) -> bytes:
    """A JSON string, with nothing escaped that need not be."""
    return msgspec.json.encode(value)


def line(kind: str, pairs: Iterable[Pair]) -> bytes:
    """A line without its end."""
    members = [b'"type":%b,"v":%d' % (text(kind), VERSION)]
    members += [b"%b:%b" % (text(name), value) for name, value in pairs]
    return b"{%b}" % b",".join(members)


def members_of(body: bytes) -> dict[str, msgspec.Raw]:
    """The members of a line; refused when it is no object."""
    try:
        return _MEMBERS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise refused("the line is no JSON object") from None


def kind_of(body: bytes) -> str:
    """A line's type, for which its first member has to stand; refused without one."""
    prefix = b'{"type":"'
    end = body.find(b'"', len(prefix), len(prefix) + 64)
    if not body.startswith(prefix) or end < 0:
        raise refused("the line does not begin with its type")
    return body[len(prefix) : end].decode("ascii", "replace")
