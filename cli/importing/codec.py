"""The one place where lines of other makes become lines of ours. Pure.

A line of this version passes as it is. An outcome of version 0 has, in place of a projection, the
`result` that somebody else stored: it becomes a projection once, here, and nothing that is stored
is ever read through this module again. What cannot be understood degrades in words; nothing is
guessed, and no tool is asked.
"""

import hashlib
from typing import Any, NamedTuple, cast

import msgspec
from counterfoil.files.v1 import artifacts_pb2

from foundation import canonical, projections
from foundation.exports import TEXT, Members
from foundation.exports.lines import Pair, line, members_of, refused
from foundation.outcomes import LEGACY_UNMAPPABLE, PROJECTION_TOO_LARGE
from foundation.projections import text_part
from services.files.export_parts import artifact_line
from services.journal import pieces
from services.journal.pieces import Words
from services.journal.projection import BODY_BYTES_MAX, Blob, artifact_part, blob
from services.journal.projector import IMAGES_MAX, PARTS_MAX

VERSION = 0
"""Of the lines that are translated."""

_OUTCOME = "journal.outcome"
_KEPT = ("operation_id", "role", "source")


class Translated(NamedTuple):
    """A line as this version writes it, and the artifacts that it needs, as lines of theirs."""

    body: bytes
    artifacts: tuple[bytes, ...] = ()


class Made(NamedTuple):
    """A projection, and the images that it refers to."""

    body: bytes
    images: tuple[Blob, ...] = ()


def is_older(body: bytes) -> bool:
    """Whether a line is one that is translated."""
    return bytes(members_of(body).get("v", b"")) == b"%d" % VERSION


def normalize(body: bytes, workspace_id: str) -> Translated:
    """A line as this version writes it. Raises INVALID_FIELD for one that has no translation."""
    if not is_older(body):
        return Translated(body)
    members = members_of(body)
    kind = members.get("type")
    if kind is None or bytes(kind) != b'"%b"' % _OUTCOME.encode():
        raise refused("a line of version 0 is an outcome", "type")
    pairs: list[Pair] = []
    for name in (*_KEPT, "created_at"):
        if name not in members:
            raise refused("is missing", name)
    pairs += [(name, bytes(members[name])) for name in _KEPT]
    result = members.get("result")
    made = project(None if result is None else bytes(result), workspace_id)
    pairs += [
        ("raw", b"null"),
        ("projection", made.body),
        ("redactor", b'""'),
        ("created_at", bytes(members["created_at"])),
    ]
    operation_id = TEXT.read("operation_id", Members({"operation_id": members["operation_id"]}))
    kept = tuple(_artifact(one, operation_id or "") for one in made.images)
    return Translated(line(_OUTCOME, pairs), kept)


def project(result: bytes | None, workspace_id: str) -> Made:
    """The projection of a stored result: one for every input, the same each time, and of a
    projection itself."""
    if result is None:
        return _failure(LEGACY_UNMAPPABLE)
    if _is_projection(result):
        return Made(result)
    images = _Images(workspace_id)
    try:
        made = canonical.encode(_body(msgspec.json.decode(result), images))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _failure(LEGACY_UNMAPPABLE)
    if len(made) > BODY_BYTES_MAX:
        return _failure(PROJECTION_TOO_LARGE)
    return Made(made, tuple(images.kept.values()))


class _Images:
    """The images of one result that are kept: those with valid bytes, as many as may be shown."""

    def __init__(self, workspace_id: str) -> None:
        self._workspace_id = workspace_id
        self._left = IMAGES_MAX
        self.kept: dict[str, Blob] = {}

    def part(self, block: dict[str, Any]) -> dict[str, object]:
        """The part of an image block, of a provider's form or that of a server of tools."""
        source: Any = block.get("source")
        if source is None and isinstance(block.get("data"), str):
            source = {"type": "base64", "data": block["data"]}
        if not isinstance(source, dict):
            return text_part(_named(block))
        piece = pieces.image(cast("dict[str, object]", source))
        if isinstance(piece, Words):
            return text_part(piece.text)
        if not self._left:
            return text_part(_named(block))
        self._left -= 1
        role = artifacts_pb2.ARTIFACT_ROLE_IMAGE
        kept = blob(self._workspace_id, piece.body, piece.media_type, role)
        self.kept[kept.artifact_id] = kept
        return artifact_part(kept, piece.w, piece.h)


def _artifact(one: Blob, operation_id: str) -> bytes:
    row = {
        "artifact_id": one.artifact_id,
        "media_type": one.media_type,
        "role": one.role,
        "operation_id": operation_id,
        "sha256": hashlib.sha256(one.body).digest(),
        "body": one.body,
    }
    return artifact_line(row)


def _is_projection(result: bytes) -> bool:
    try:
        projections.read(result)
        return canonical.encode(msgspec.json.decode(result)) == result
    except (ValueError, RecursionError):
        return False


def _body(value: object, images: _Images) -> dict[str, object]:
    if isinstance(value, str):
        return {"kind": "text", "text": value, "v": 1}
    if isinstance(value, dict):
        return _of_object(cast("dict[str, Any]", value), images)
    if isinstance(value, list) and _are_blocks(cast("list[Any]", value)):
        return _content(cast("list[Any]", value), images, is_error=False)
    return {"kind": "json", "value": value, "v": 1}


def _of_object(value: dict[str, Any], images: _Images) -> dict[str, object]:
    """Results of MCP servers, and of providers, have blocks; every other object is a value."""
    content = value.get("content")
    is_error = value.get("is_error") is True or value.get("isError") is True
    if isinstance(content, list) and _are_blocks(cast("list[Any]", content)):
        return _content(cast("list[Any]", content), images, is_error=is_error)
    if value.get("type") == "tool_result" and isinstance(content, str):
        made: dict[str, object] = {"kind": "text", "text": content, "v": 1}
        return {**made, "is_error": True} if is_error else made
    return {"kind": "json", "value": value, "v": 1}


def _are_blocks(items: list[Any]) -> bool:
    return all(
        isinstance(one, dict) and isinstance(cast("dict[str, Any]", one).get("type"), str)
        for one in items
    )


def _content(blocks: list[dict[str, Any]], images: _Images, *, is_error: bool) -> dict[str, object]:
    if len(blocks) > PARTS_MAX:
        return {"kind": "failure", "code": PROJECTION_TOO_LARGE, "v": 1}
    parts = [_part(block, images) for block in blocks]
    made: dict[str, object] = {"kind": "content", "parts": parts, "v": 1}
    return {**made, "is_error": True} if is_error else made


def _part(block: dict[str, Any], images: _Images) -> dict[str, object]:
    """A text as it is, an image as what is kept of it, and anything else by its name."""
    text = block.get("text")
    if isinstance(text, str):
        return text_part(text)
    return images.part(block) if block["type"] == "image" else text_part(_named(block))


def _named(block: dict[str, Any]) -> str:
    return f"[{block['type'][:64]}: not carried over]"


def _failure(code: str) -> Made:
    return Made(canonical.encode({"code": code, "kind": "failure", "v": 1}))
