"""The one place where lines of other makes become lines of ours. Pure.

A line of this version passes as it is. An outcome of version 0 has, in place of a projection, the
`result` that somebody else stored: it becomes a projection once, here, and nothing that is stored
is ever read through this module again. What cannot be understood degrades in words; nothing is
guessed, and no tool is asked.
"""

from typing import Any, cast

import msgspec

from foundation import canonical, projections
from foundation.exports.lines import Pair, line, members_of, refused
from foundation.outcomes import LEGACY_UNMAPPABLE, PROJECTION_TOO_LARGE

VERSION = 0
"""Of the lines that are translated."""

_OUTCOME = "journal.outcome"
_BODY_BYTES_MAX = 512 * 1024
_PARTS_MAX = 64
_KEPT = ("operation_id", "role", "source")


def normalize(body: bytes) -> bytes:
    """A line as this version writes it. Raises INVALID_FIELD for one that has no translation."""
    members = members_of(body)
    version, kind = members.get("v"), members.get("type")
    if version is None or bytes(version) != b"%d" % VERSION:
        return body
    if kind is None or bytes(kind) != b'"%b"' % _OUTCOME.encode():
        raise refused("a line of version 0 is an outcome", "type")
    pairs: list[Pair] = []
    for name in (*_KEPT, "created_at"):
        if name not in members:
            raise refused("is missing", name)
    pairs += [(name, bytes(members[name])) for name in _KEPT]
    result = members.get("result")
    pairs += [
        ("raw", b"null"),
        ("projection", project(None if result is None else bytes(result))),
        ("redactor", b'""'),
        ("created_at", bytes(members["created_at"])),
    ]
    return line(_OUTCOME, pairs)


def project(result: bytes | None) -> bytes:
    """The projection of a stored result: one for every input, the same each time, and of a
    projection itself."""
    if result is None:
        return _failure(LEGACY_UNMAPPABLE)
    if _is_projection(result):
        return result
    try:
        made = canonical.encode(_body(msgspec.json.decode(result)))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _failure(LEGACY_UNMAPPABLE)
    return made if len(made) <= _BODY_BYTES_MAX else _failure(PROJECTION_TOO_LARGE)


def _is_projection(result: bytes) -> bool:
    try:
        projections.read(result)
        return canonical.encode(msgspec.json.decode(result)) == result
    except (ValueError, RecursionError):
        return False


def _body(value: object) -> dict[str, object]:
    if isinstance(value, str):
        return {"kind": "text", "text": value, "v": 1}
    if isinstance(value, dict):
        return _of_object(cast("dict[str, Any]", value))
    if isinstance(value, list) and _are_blocks(cast("list[Any]", value)):
        return _content(cast("list[Any]", value), is_error=False)
    return {"kind": "json", "value": value, "v": 1}


def _of_object(value: dict[str, Any]) -> dict[str, object]:
    """Results of MCP servers, and of providers, have blocks; every other object is a value."""
    content = value.get("content")
    is_error = value.get("is_error") is True or value.get("isError") is True
    if isinstance(content, list) and _are_blocks(cast("list[Any]", content)):
        return _content(cast("list[Any]", content), is_error=is_error)
    if value.get("type") == "tool_result" and isinstance(content, str):
        made: dict[str, object] = {"kind": "text", "text": content, "v": 1}
        return {**made, "is_error": True} if is_error else made
    return {"kind": "json", "value": value, "v": 1}


def _are_blocks(items: list[Any]) -> bool:
    return all(
        isinstance(one, dict) and isinstance(cast("dict[str, Any]", one).get("type"), str)
        for one in items
    )


def _content(blocks: list[dict[str, Any]], *, is_error: bool) -> dict[str, object]:
    if len(blocks) > _PARTS_MAX:
        return {"kind": "failure", "code": PROJECTION_TOO_LARGE, "v": 1}
    parts = [{"kind": "text", "text": _words(block)} for block in blocks]
    made: dict[str, object] = {"kind": "content", "parts": parts, "v": 1}
    return {**made, "is_error": True} if is_error else made


def _words(block: dict[str, Any]) -> str:
    """A block in words. Bytes of images have no place in a line of outcomes, so they are named."""
    text = block.get("text")
    if isinstance(text, str):
        return text
    return f"[{block['type'][:64]}: not carried over]"


def _failure(code: str) -> bytes:
    return canonical.encode({"code": code, "kind": "failure", "v": 1})
