"""Projection version 1: what the model sees of an outcome. Pure, total, bounded.

The body is canonical JSON, one of

- `{"kind":"content","parts":[{"kind":"text","text":…}],"v":1}` with 0 to 64 parts, and
  `"is_error":true` as first member when the call failed (it is left out when it did not);
- `{"code":…,"kind":"failure","v":1}` when the outcome cannot be shown. Its text derives from the
  code (`foundation.outcomes.failure_text`).

A body that was stored is never computed again, so that later versions cannot alter what was seen.
"""

import json
from typing import Any, NamedTuple, cast

from foundation import canonical, digests
from foundation.outcomes import (
    MAY_HAVE_RUN_TEXT,
    NOT_RUN_TEXT,
    PROJECTION_FAILED,
    PROJECTION_TOO_LARGE,
)

DOMAIN = "counterfoil.projection.v1"
BODY_BYTES_MAX = 512 * 1024
PARTS_MAX = 64


class Projected(NamedTuple):
    """A projection's canonical bytes and their digest (32 bytes)."""

    body: bytes
    digest: bytes


class _TooLargeError(Exception):
    """More than a projection may hold."""


def project(content: bytes, *, is_error: bool) -> Projected:
    """The projection of a raw outcome: a JSON array of content blocks, empty bytes for none.

    Never raises: an outcome that has no projection gets one that says so.
    """
    try:
        return digested(_content(_texts(content), is_error=is_error))
    except _TooLargeError:
        return _failure(PROJECTION_TOO_LARGE)
    except (ValueError, RecursionError):
        return _failure(PROJECTION_FAILED)


def not_run() -> Projected:
    """Of a call that was closed before it started."""
    return digested(_content([NOT_RUN_TEXT], is_error=True))


def may_have_run() -> Projected:
    """Of a call that was started and has no outcome."""
    return digested(_content([MAY_HAVE_RUN_TEXT], is_error=True))


def digested(body: bytes) -> Projected:
    """A stored body with its digest."""
    return Projected(body, digests.digest(DOMAIN, body))


def _content(texts: list[str], *, is_error: bool) -> bytes:
    parts: list[object] = [{"kind": "text", "text": text} for text in texts]
    value: dict[str, object] = {"kind": "content", "parts": parts, "v": 1}
    if is_error:
        value["is_error"] = True
    body = canonical.encode(value)
    if len(body) > BODY_BYTES_MAX:
        raise _TooLargeError
    return body


def _failure(code: str) -> Projected:
    return digested(canonical.encode({"code": code, "kind": "failure", "v": 1}))


def _texts(content: bytes) -> list[str]:
    if not content:
        return []
    blocks: object = json.loads(
        content.decode(), object_pairs_hook=_object, parse_constant=_no_constant
    )
    if not isinstance(blocks, list):
        raise ValueError("an outcome is an array of content blocks")
    texts = [_text(block) for block in cast("list[object]", blocks)]
    if len(texts) > PARTS_MAX:
        raise _TooLargeError
    return texts


def _text(block: object) -> str:
    if not isinstance(block, dict):
        raise ValueError("a content block is an object")
    members = cast("dict[str, object]", block)
    text = members.get("text")
    if members.get("type") != "text" or not isinstance(text, str):
        raise ValueError("only text has a projection")
    return text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key is named twice")
    return members


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
