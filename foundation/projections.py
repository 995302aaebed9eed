"""Reading projections (version 1): what the model is shown of an outcome, and what the public is.

The journal writes them; the context service and the runner read them through this module, so that
model and public see the same words. The schema is closed: a body with an unknown version, kind or
member has no reading.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from foundation import canonical, digests, outcomes
from foundation.outcomes import denied_text, failure_text

DOMAIN = "counterfoil.projection.v1"
"""Domain of a body's digest."""


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class TextPart(_Stored, frozen=True, tag="text"):
    """A part that is read."""

    text: msgspec.Raw


class ArtifactPart(_Stored, frozen=True, tag="artifact"):
    """A part that refers to stored bytes."""

    artifact_id: str
    media_type: str
    size: int
    sha256: str
    w: int = 0
    h: int = 0
    alt: msgspec.Raw = msgspec.Raw()


class TextBody(_Stored, frozen=True, tag="text"):
    """One text that was no list of content blocks."""

    v: Literal[1]
    text: msgspec.Raw
    is_error: bool = False


class JsonBody(_Stored, frozen=True, tag="json"):
    """A JSON value that was no list of content blocks."""

    v: Literal[1]
    value: msgspec.Raw
    is_error: bool = False


class ContentBody(_Stored, frozen=True, tag="content"):
    """Parts."""

    v: Literal[1]
    parts: tuple[TextPart | ArtifactPart, ...]
    is_error: bool = False


class DeniedBody(_Stored, frozen=True, tag="denied"):
    """A call that was denied."""

    v: Literal[1]
    reason: msgspec.Raw = msgspec.Raw()


class FailureBody(_Stored, frozen=True, tag="failure"):
    """An outcome that cannot be shown, or is not known."""

    v: Literal[1]
    code: str


Body = TextBody | JsonBody | ContentBody | DeniedBody | FailureBody
"""A projection as it is stored; strings that are shown stay exact JSON."""


class Text(NamedTuple):
    """Text that is shown: an exact JSON string."""

    raw: bytes


class Artifact(NamedTuple):
    """Bytes that are shown, or named, by reference. `sha256` is hex; `w` and `h` are pixels, 0
    where it is no image; `alt` is an exact JSON string, empty for none."""

    id: str
    media_type: str
    size: int
    sha256: str
    w: int = 0
    h: int = 0
    alt: bytes = b""

    @property
    def is_image(self) -> bool:
        """Whether it is shown as an image; else it is a text."""
        return self.media_type.startswith("image/")


class Shown(NamedTuple):
    """An outcome as parts, in order; none for an empty result."""

    parts: tuple[Text | Artifact, ...]
    is_error: bool

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts, decoded."""
        return tuple(
            msgspec.json.decode(part.raw, type=str) for part in self.parts if isinstance(part, Text)
        )


_BODY = msgspec.json.Decoder[Body](Body)


REDACTED = canonical.encode({"code": outcomes.REDACTED, "kind": "failure", "v": 1})
"""Stands for an outcome that was redacted."""


def digest(body: bytes) -> bytes:
    """What a body is known by; 32 bytes."""
    return digests.digest(DOMAIN, body)


def decode(body: bytes) -> Body:
    """A stored projection. Raises ValueError for one that this version does not know."""
    return _BODY.decode(body)


def read(body: bytes) -> Shown:
    """What a projection shows. Raises ValueError for one that this version does not know."""
    return shown(decode(body))


def collect_refs(body: bytes) -> tuple[str, ...]:
    """Ids of the artifacts that a projection refers to, in order, each once. Raises ValueError for
    one that this version does not know."""
    decoded = decode(body)
    parts = decoded.parts if isinstance(decoded, ContentBody) else ()
    ids = [part.artifact_id for part in parts if isinstance(part, ArtifactPart)]
    return tuple(dict.fromkeys(ids))


def shown(body: Body) -> Shown:
    """What a decoded projection shows. Raises ValueError for a text that is no string."""
    match body:
        case ContentBody():
            return Shown(tuple(_part(part) for part in body.parts), body.is_error)
        case TextBody():
            return Shown((_text(body.text),), body.is_error)
        case JsonBody():
            return Shown((_written(bytes(body.value).decode()),), body.is_error)
        case DeniedBody():
            reason = msgspec.json.decode(body.reason, type=str) if body.reason else ""
            return Shown((_written(denied_text(reason)),), is_error=True)
        case FailureBody():
            return Shown((_written(failure_text(body.code)),), is_error=True)


def _written(text: str) -> Text:
    return Text(msgspec.json.encode(text))


def _text(raw: msgspec.Raw) -> Text:
    exact = bytes(raw)
    if not exact.startswith(b'"'):
        raise ValueError("a projection's text is no string")
    return Text(exact)


def _part(part: TextPart | ArtifactPart) -> Text | Artifact:
    if isinstance(part, TextPart):
        return _text(part.text)
    return Artifact(
        part.artifact_id, part.media_type, part.size, part.sha256, part.w, part.h, bytes(part.alt)
    )


def write_content(parts: Iterable[object], *, is_error: bool) -> bytes:
    """The body of parts, which are made by `text_part` and `part_value`."""
    error: dict[str, object] = {"is_error": True} if is_error else {}
    return canonical.encode({"kind": "content", "parts": list(parts), **error, "v": 1})


def text_part(value: str) -> dict[str, object]:
    """A part that is read, as it is stored."""
    return {"kind": "text", "text": value}


def part_value(part: Text | Artifact) -> dict[str, object]:
    """A part as it is stored."""
    if isinstance(part, Text):
        return text_part(msgspec.json.decode(part.raw, type=str))
    value: dict[str, object] = {
        "artifact_id": part.id,
        "kind": "artifact",
        "media_type": part.media_type,
        "sha256": part.sha256,
        "size": part.size,
    }
    if part.w:
        value |= {"h": part.h, "w": part.w}
    if part.alt:
        value["alt"] = msgspec.json.decode(part.alt, type=str)
    return value
