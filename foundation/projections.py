"""Reading projections (version 1): what the model is shown of an outcome, and what the public is.

The journal writes them; the context service and the runner read them through this module, so that
model and public see the same words. The schema is closed: a body with an unknown version, kind or
member has no reading.
"""

from typing import Literal, NamedTuple

import msgspec

from foundation import digests
from foundation.outcomes import denied_text, failure_text

DOMAIN = "counterfoil.projection.v1"
"""Domain of a body's digest."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One part of a `content` body, as it is stored."""

    kind: Literal["text", "artifact"]
    text: msgspec.Raw = msgspec.Raw()
    artifact_id: str = ""
    media_type: str = ""
    size: int = 0
    sha256: str = ""
    w: int = 0
    h: int = 0
    alt: msgspec.Raw = msgspec.Raw()


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A projection as it is stored; members that a kind does not have keep their defaults."""

    v: Literal[1]
    kind: Literal["text", "json", "content", "denied", "failure"]
    text: msgspec.Raw = msgspec.Raw()
    value: msgspec.Raw = msgspec.Raw()
    parts: tuple[Part, ...] = ()
    is_error: bool = False
    reason: msgspec.Raw = msgspec.Raw()
    code: str = ""


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


_BODY = msgspec.json.Decoder(Body)


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
    parts = decode(body).parts
    return tuple(dict.fromkeys(part.artifact_id for part in parts if part.kind == "artifact"))


def shown(body: Body) -> Shown:
    """What a decoded projection shows."""
    if (body.kind == "text" and not body.text) or (body.kind == "json" and not body.value):
        raise ValueError(f"a projection of kind {body.kind} lacks what it shows")
    match body.kind:
        case "content":
            return Shown(tuple(_part(part) for part in body.parts), body.is_error)
        case "text":
            return Shown((Text(bytes(body.text)),), body.is_error)
        case "json":
            return Shown((_written(bytes(body.value).decode()),), body.is_error)
        case "denied":
            reason = msgspec.json.decode(body.reason, type=str) if body.reason else ""
            return Shown((_written(denied_text(reason)),), is_error=True)
        case "failure":
            return Shown((_written(failure_text(body.code)),), is_error=True)


def _written(text: str) -> Text:
    return Text(msgspec.json.encode(text))


def _part(part: Part) -> Text | Artifact:
    if not (part.text if part.kind == "text" else part.artifact_id):
        raise ValueError(f"a part of kind {part.kind} lacks what it shows")
    if part.kind == "text":
        return Text(bytes(part.text))
    return Artifact(
        part.artifact_id, part.media_type, part.size, part.sha256, part.w, part.h, bytes(part.alt)
    )
