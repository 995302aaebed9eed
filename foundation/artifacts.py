"""Artifacts: their ids, and how a result names one wherever words are read.

The model and the public read the same words: the materializer, public events and the read_archive
tool all take them from here.
"""

import re

import msgspec

from foundation import ids
from foundation.projections import Artifact, Shown, Text

BODY_BYTES_MAX = 32 * 1024 * 1024
"""What one artifact may hold."""

IMAGE_BASE64_MAX = 5 * 1024 * 1024
"""Characters of base64 that providers take of one image; more is refused, with all of the
request."""

IMAGE_BYTES_MAX = IMAGE_BASE64_MAX // 4 * 3
"""What an image may hold, so that its base64 is no longer than that."""

RESULTS_FOLDER = ".counterfoil-tool-results"
"""Where a session's files hold the texts that were too long to be shown."""

TEXT_TYPE = "text/plain"
"""Media type of those texts."""

GONE_TEXT = "(the stored copy is not kept any more)"
"""What stands for an artifact whose bytes are gone."""

_NAMED = re.compile(rf"(?:{re.escape(RESULTS_FOLDER)}/)?(art_[0-9a-z]{{26}})(?:\.txt)?")


def artifact_id(workspace_id: str, sha256: bytes, media_type: str, role: int) -> str:
    """The id of this content in every session of the workspace. `sha256` is 32 bytes, `role` a
    value of `files.v1.ArtifactRole`."""
    return ids.derived("artifact", workspace_id, sha256, media_type, role)


def path_of(artifact: Artifact) -> str:
    """Where a session's files hold the text of an artifact."""
    return f"{RESULTS_FOLDER}/{artifact.id}.txt"


def named_by(ref: str) -> str | None:
    """The id of the artifact that a ref names by its id or by the path of its text; None for a ref
    that names none."""
    found = _NAMED.fullmatch(ref)
    return found[1] if found else None


def line(artifact: Artifact) -> str:
    """One line that says what was kept."""
    size = f"{artifact.size:,} bytes"
    if not artifact.is_image:
        return f"[The whole text, {size}, is kept in {path_of(artifact)}]"
    alt = f", {msgspec.json.decode(artifact.alt, type=str)}" if artifact.alt else ""
    pixels = f"{artifact.w} x {artifact.h} pixels"
    return f"[Image {artifact.id}: {artifact.media_type}, {pixels}, {size}{alt}]"


def words(shown: Shown) -> tuple[str, ...]:
    """A result in words alone: its texts, and a line for each artifact, in order."""
    return tuple(
        msgspec.json.decode(part.raw, type=str) if isinstance(part, Text) else line(part)
        for part in shown.parts
    )
