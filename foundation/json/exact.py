"""Strict JSON: the check that stands before any slicing, and the slicing itself.

Untrusted bytes are parsed once at C speed. Only bytes that are refused are scanned again, slowly,
to name the place (`diagnosis.py`), so valid documents pay nothing for good errors.
"""

import json
import re
from itertools import accumulate
from typing import Any, NoReturn

import msgspec

from foundation.json.diagnosis import diagnose
from foundation.json.errors import InvalidJson

DEPTH_MAX = 64
"""Levels of arrays and objects that a document may have; a lone scalar has none."""

RawJson = bytes | msgspec.Raw
"""The exact bytes of one JSON value; `bytes(raw)` copies them out of the document."""


class _RefusedError(ValueError):
    """The fast parser met something that is not allowed; the diagnosis finds the words."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _RefusedError
    return members


def _constant(_: str) -> NoReturn:
    raise _RefusedError


def _long_integer(text: str) -> int | float:
    # Python refuses to parse more than 4,300 digits; no typed field holds such a number anyway.
    return int(text) if len(text) < 4_000 else float(text)


_PARSER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
_PARSER_LONG_INTEGERS = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_int=_long_integer
)

_SPACE = " \t\n\r"
_OTHER_THAN_BRACKETS = bytes(set(range(256)) - set(b'"[]{}'))
_STEPS = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")
_STRING_OF_BRACKETS = re.compile(rb'"[^"]*"')
_SURROGATE_PAIR = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse(raw: bytes) -> Any:
    """Parse one strict JSON document into Python values.

    Raises InvalidJson, with the JSON path, for anything but the JSON grammar, invalid UTF-8,
    duplicate keys, lone surrogates (escaped ones too) and more than `DEPTH_MAX` levels. Numbers
    come back as int or float and may have lost digits: exact values are in the bytes only.
    """
    try:
        value = _parse_fast(raw.decode())
    except (ValueError, RecursionError):
        raise _refusal(raw) from None
    if _is_too_deep(raw) or _has_lone_surrogate(raw):
        raise _refusal(raw)
    return value


def check(raw: bytes) -> None:
    """Raise InvalidJson unless `raw` is one strict JSON document, as `parse` defines it."""
    parse(raw)


def members(raw: RawJson) -> dict[str, msgspec.Raw]:
    """Slice a checked object: member name → exact bytes of its value."""
    return _MEMBERS.decode(raw)


def items(raw: RawJson) -> list[msgspec.Raw]:
    """Slice a checked array: the exact bytes of each item."""
    return _ITEMS.decode(raw)


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def _parse_fast(text: str) -> Any:
    text = text.strip(_SPACE)
    try:
        value, end = _PARSER.raw_decode(text)
        if end != len(text):
            raise _RefusedError
        return value
    except (json.JSONDecodeError, _RefusedError):
        raise
    except ValueError:
        return _PARSER_LONG_INTEGERS.decode(text)


def _refusal(raw: bytes) -> InvalidJson:
    return diagnose(raw, DEPTH_MAX)


def _is_too_deep(raw: bytes) -> bool:
    """Tell whether a grammatical document has more than `DEPTH_MAX` levels.

    Only brackets outside of strings are kept, as steps of +1 and -1 whose sums are the levels.
    """
    if raw.count(b"[") + raw.count(b"{") <= DEPTH_MAX:
        return False
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Removing two adjacent quotes keeps what is inside a string and what is outside.
    brackets = raw.translate(None, _OTHER_THAN_BRACKETS).replace(b'""', b"")
    steps = _STRING_OF_BRACKETS.sub(b"", brackets).translate(_STEPS)
    return max(accumulate(memoryview(steps).cast("b")), default=0) > DEPTH_MAX


def _has_lone_surrogate(raw: bytes) -> bool:
    """Tell whether a grammatical document escapes half of a surrogate pair."""
    if not _SURROGATE.search(raw):
        return False
    raw = raw.replace(b"\\\\", b"  ")
    return _SURROGATE.search(_SURROGATE_PAIR.sub(b"", raw)) is not None
