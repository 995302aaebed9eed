"""Canonical JSON (CJ1): one value, one sequence of bytes, which may therefore be hashed.

Keys are sorted by code point, nothing is escaped that need not be, integers beyond 2^53 are
decimal strings, floats without a fraction are integers. U+0000 becomes the six characters
`\\u0000` and half of a surrogate pair becomes U+FFFD: neither survives the systems that text
travels through.
"""

import json
import math
import re
from typing import cast

_INTEGER_LIMIT = 2**53
_SURROGATE = re.compile("[\ud800-\udfff]")


def text(value: str) -> str:
    """The canonical form of one string."""
    if "\x00" in value:
        value = value.replace("\x00", "\\u0000")
    return _SURROGATE.sub("\ufffd", value)


def encode(value: object) -> bytes:
    """The canonical bytes of null, bool, int, finite float, str, list and dict with string keys.

    Raises ValueError for every other value, and for keys that are equal in their canonical form.
    """
    normal = _normal(value)
    return json.dumps(
        normal, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    ).encode()


def _normal(value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, int):
        return value if abs(value) < _INTEGER_LIMIT else str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list):
        return [_normal(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return _object(cast("dict[object, object]", value))
    raise ValueError(f"canonical JSON has no {type(value).__name__}")


def _number(value: float) -> int | float:
    if not math.isfinite(value):
        raise ValueError("canonical JSON has no infinite numbers")
    if value.is_integer() and abs(value) < _INTEGER_LIMIT:
        return int(value)
    return value


def _object(value: dict[object, object]) -> dict[str, object]:
    members: dict[str, object] = {}
    for key, member in value.items():
        if not isinstance(key, str):
            raise ValueError("canonical JSON has only string keys")
        name = text(key)
        if name in members:
            raise ValueError("two keys are equal in canonical JSON")
        members[name] = _normal(member)
    return members
