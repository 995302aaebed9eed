"""Projection version 1 as it is written: canonical JSON of a closed schema, bounded, with a digest.

- `{"kind":"text","text":…,"v":1}` and `{"kind":"json","value":…,"v":1}`;
- `{"kind":"content","parts":[…],"v":1}` with 0 to 64 parts, each `{"kind":"text","text":…}` or
  `{"artifact_id":…,"kind":"artifact","media_type":…,"sha256":…,"size":…}`, with `h` and `w` for
  images;
- `{"kind":"denied","reason":…,"v":1}`, without `reason` when none was given;
- `{"code":…,"kind":"failure","v":1}` when an outcome cannot be shown or is not known.

The first three begin with `"is_error":true` when the call failed; it is left out when it did not.
`foundation.projections` reads them. The text of a denial or a failure is derived there, never
stored. A body that was stored is never computed again, so that later versions cannot alter what was
seen.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from counterfoil.files.v1 import artifacts_pb2

from foundation import canonical, projections
from foundation.artifacts import artifact_id
from foundation.outcomes import (
    NOT_RUN_TEXT,
    OUTCOME_UNKNOWN,
    PROJECTION_FAILED,
    PROJECTION_TIMEOUT,
    PROJECTION_TOO_LARGE,
    cut_reason,
)
from foundation.projections import Artifact, text_part

BODY_BYTES_MAX = 512 * 1024

Role = artifacts_pb2.ArtifactRole.ValueType


class Projected(NamedTuple):
    """A projection's canonical bytes, their digest (32 bytes), and the version of the redaction
    patterns that it went through, empty for none."""

    body: bytes
    digest: bytes
    redactor: str = ""


class Blob(NamedTuple):
    """Bytes that a projection refers to."""

    artifact_id: str
    body: bytes
    media_type: str
    role: Role


class Plan(NamedTuple):
    """A projection, and what must be stored before it may be."""

    projected: Projected
    blobs: tuple[Blob, ...] = ()


def digested(body: bytes, redactor: str = "") -> Projected:
    """A body with its digest."""
    return Projected(body, projections.digest(body), redactor)


def text(value: str, *, is_error: bool) -> bytes:
    """The body of one text that is no list of content blocks."""
    return _body({"kind": "text", "text": value}, is_error=is_error)


def json(value: object, *, is_error: bool) -> bytes:
    """The body of a JSON value that is no list of content blocks."""
    return _body({"kind": "json", "value": value}, is_error=is_error)


def content(parts: Sequence[object], *, is_error: bool) -> bytes:
    """The body of parts."""
    return projections.write_content(parts, is_error=is_error)


def denied(reason: str) -> bytes:
    """The body of a call that was denied; `reason` is canonical text, empty for none."""
    members: dict[str, object] = {"kind": "denied"}
    if reason:
        members["reason"] = cut_reason(reason)
    return _body(members, is_error=False)


def failure(code: str) -> bytes:
    """The body of an outcome that has no form of its own."""
    return _body({"kind": "failure", "code": code}, is_error=False)


def is_unshown(projected: Projected | None) -> bool:
    """Whether an outcome is there, and its projection says only that it could not be shown."""
    return projected is not None and projected.body in _UNSHOWN


def artifact_part(blob: Blob, w: int = 0, h: int = 0) -> dict[str, object]:
    """A part that refers to stored bytes; `w` and `h` are pixels, 0 for what is no image."""
    sha256 = hashlib.sha256(blob.body).hexdigest()
    kept = Artifact(blob.artifact_id, blob.media_type, len(blob.body), sha256, w, h)
    return projections.part_value(kept)


def blob(workspace_id: str, body: bytes, media_type: str, role: Role) -> Blob:
    """Bytes under the id that they have in every session of the workspace."""
    sha256 = hashlib.sha256(body).digest()
    return Blob(artifact_id(workspace_id, sha256, media_type, role), body, media_type, role)


def bounded(body: bytes) -> bytes:
    """The body, or a failure in place of one that no row may hold."""
    return body if len(body) <= BODY_BYTES_MAX else failure(PROJECTION_TOO_LARGE)


def not_run() -> Projected:
    """Of a call that was closed before it started."""
    return digested(content([text_part(NOT_RUN_TEXT)], is_error=True))


def may_have_run() -> Projected:
    """Of a call that was started and has no outcome."""
    return digested(failure(OUTCOME_UNKNOWN))


def _body(members: dict[str, object], *, is_error: bool) -> bytes:
    error: dict[str, object] = {"is_error": True} if is_error else {}
    return canonical.encode({**members, **error, "v": 1})


_UNSHOWN = frozenset(map(failure, (PROJECTION_FAILED, PROJECTION_TIMEOUT, PROJECTION_TOO_LARGE)))
