"""Messages to JSON and back, driven by the options in `counterfoil/types/v1/annotations.proto`."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from google.protobuf.message import Message

from foundation.json.exact import parse
from foundation.json.query import bind
from foundation.json.reading import reader_for
from foundation.json.shape import descriptor_of
from foundation.json.writing import writer_for

M = TypeVar("M", bound=Message)

_ENCODER = msgspec.json.Encoder()


def decode(
    message_type: type[M],
    raw: bytes,
    *,
    bound: Mapping[str, object] | None = None,
) -> M:
    """Build a message from untrusted JSON; no bytes, or only white space, count as `{}`.

    A server-bound FieldMask, at any depth, receives the names of the fields beside it whose keys
    are present, nulls included. `bound` maps field names (dotted for nested ones) to values that
    the path or the metadata decides; they replace whatever was read. Raises InvalidJson with the
    JSON path. The limits of the contract are not checked here: see `validate`.
    """
    raw = raw if raw.strip() else b"{}"
    value = parse(raw)
    found = reader_for(descriptor_of(message_type)).read(value, raw)
    if bound:
        bind(descriptor_of(message_type), found, bound)
    return message_type(**found)


def present(message_type: type[Message], raw: bytes) -> list[str]:
    """Return the paths of an AIP-134 mask for a body that `decode` accepts: its present fields."""
    value = parse(raw if raw.strip() else b"{}")
    reader: Any = reader_for(descriptor_of(message_type))
    return reader.present(value) if isinstance(value, (dict, list)) else []


def encode(message: Message, *, omit: tuple[str, ...] = ()) -> bytes:
    """Render compact UTF-8 JSON; only what JSON requires is escaped.

    `omit` names members of the outermost object to leave out (a `processed_at` that readers splice
    in). Maps are rendered in the order of their keys, so equal messages give equal bytes. Raises
    ValueError for what has no JSON: a union without variant, a number that is not finite, an
    unknown enum value, an empty item of raw JSON.
    """
    value = writer_for(descriptor_of(message)).write(message)
    for key in omit:
        value.pop(key, None)
    return _ENCODER.encode(value)


def splice(body: bytes, key: str, value: bytes) -> bytes:
    """Append a member to a rendered object, as its last one; `value` is rendered JSON."""
    comma = b"" if body == b"{}" else b","
    return b"".join((body[:-1], comma, _ENCODER.encode(key), b":", value, b"}"))
