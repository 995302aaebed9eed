"""From a raw outcome to what the model sees of it: pure, total, synchronous, bounded in size; in
time and memory where `projecting` runs it.

It runs once for each outcome, before that is committed, and again only where a crash left a receipt
without an outcome. Whatever the outcome holds, there is a projection for it.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

from counterfoil.files.v1 import artifacts_pb2

from foundation import canonical
from foundation.artifacts import BODY_BYTES_MAX as ARTIFACT_BYTES_MAX
from foundation.artifacts import TEXT_TYPE
from foundation.outcomes import PROJECTION_FAILED
from foundation.projections import text_part
from services.journal import pieces, projection
from services.journal.pieces import Document, Piece, Words
from services.journal.projection import BODY_BYTES_MAX, Blob, Plan, digested
from services.journal.redaction import Redactor

TEXT_CHARS_MAX = 100_000
"""Code points of text that are shown, all parts together."""

HEAD_CHARS, TAIL_CHARS = 1_200, 800
"""What is shown of a longer text."""

PARTS_MAX = 64
IMAGES_MAX = 4
DEPTH_MAX = 32
NODES_MAX = 20_000

UNAVAILABLE_TEXT = "[stored copy unavailable]"
"""Stands for an image that could not be stored."""

_REST_TEXT = "[The rest was not kept.]"


class Policy(NamedTuple):
    """What a deployment decides about projections."""

    workspace_id: str
    redactor: Redactor
    keeps_blobs: bool = True
    """Whether bytes can be stored; without, their text says so."""


def project(content: bytes, *, is_error: bool, policy: Policy) -> Plan:
    """The projection of a raw outcome, a JSON array of content blocks (empty bytes for none), and
    the bytes that must be stored before it is. Never raises."""
    try:
        made = _of(pieces.read(content, policy.redactor), is_error=is_error, policy=policy)
    except Exception:  # Total by contract: an outcome must never be lost for what it holds.
        made = projection.failure(PROJECTION_FAILED), ()
    body, blobs = made
    return Plan(digested(body, policy.redactor.version), blobs)


def fail(code: str, policy: Policy) -> Plan:
    """The projection of an outcome that none could be made of."""
    return Plan(digested(projection.failure(code), policy.redactor.version))


def deny(reason: str, policy: Policy) -> Plan:
    """The projection of a denial; `reason` is the client's, empty for none."""
    body = projection.denied(pieces.words(policy.redactor.text(reason)).text)
    return Plan(digested(body, policy.redactor.version))


_Made = tuple[bytes, tuple[Blob, ...]]


def _of(read: list[Piece] | Document, *, is_error: bool, policy: Policy) -> _Made:
    if not isinstance(read, Document):
        return _content(read, is_error=is_error, policy=policy)
    value = read.value
    written = value if isinstance(value, str) else canonical.encode(value).decode()
    if len(written) <= TEXT_CHARS_MAX and _is_flat(value):
        form = projection.text if isinstance(value, str) else projection.json
        body = form(cast("str", value), is_error=is_error)
        if len(body) <= BODY_BYTES_MAX:
            return body, ()
    return _content([Words(written)], is_error=is_error, policy=policy)


def _content(read: Sequence[Piece], *, is_error: bool, policy: Policy) -> _Made:
    """Every piece if they fit, otherwise the beginning and the end of the text."""
    if sum(len(piece.text) for piece in read if isinstance(piece, Words)) <= TEXT_CHARS_MAX:
        shown, blobs = _parts(read, policy)
        body = projection.content(shown, is_error=is_error)
        if len(body) <= BODY_BYTES_MAX:
            return body, blobs
    whole = "\n".join(piece.text for piece in read if isinstance(piece, Words))
    pictures = [piece for piece in read if not isinstance(piece, Words)]
    previewed, kept = _preview(whole, policy)
    shown, blobs = _parts(pictures, policy)
    body = projection.content([*previewed, *shown], is_error=is_error)
    return projection.bounded(body), (*kept, *blobs)


def _preview(whole: str, policy: Policy) -> tuple[list[object], tuple[Blob, ...]]:
    between = f"[{len(whole) - HEAD_CHARS - TAIL_CHARS:,} characters are left out here]"
    shown = f"{whole[:HEAD_CHARS]}\n\n{between}\n\n{whole[-TAIL_CHARS:]}"
    body = whole.encode()
    if not policy.keeps_blobs or len(body) > ARTIFACT_BYTES_MAX:
        return [text_part(f"{shown}\n\n{_REST_TEXT}")], ()
    role = artifacts_pb2.ARTIFACT_ROLE_TOOL_OUTPUT
    kept = projection.blob(policy.workspace_id, body, TEXT_TYPE, role)
    return [text_part(shown), projection.artifact_part(kept)], (kept,)


def _parts(read: Sequence[Piece], policy: Policy) -> tuple[list[object], tuple[Blob, ...]]:
    """A part for each piece, as many as there may be, and a text that counts the others."""
    fitting, images_more, others_more = _within_limits(read)
    parts: list[object] = []
    blobs: dict[str, Blob] = {}
    for piece in fitting:
        if isinstance(piece, Words):
            parts.append(text_part(piece.text))
        elif policy.keeps_blobs:
            role = artifacts_pb2.ARTIFACT_ROLE_IMAGE
            kept = projection.blob(policy.workspace_id, piece.body, piece.media_type, role)
            blobs[kept.artifact_id] = kept
            parts.append(projection.artifact_part(kept, piece.w, piece.h))
        else:
            parts.append(text_part(UNAVAILABLE_TEXT))
    if images_more or others_more:
        parts.append(text_part(_more(images_more, others_more)))
    return parts, tuple(blobs.values())


def _within_limits(read: Sequence[Piece]) -> tuple[list[Piece], int, int]:
    """The pieces that become parts, and how many images and how many others do not."""
    kept: list[Piece] = []
    images = images_more = 0
    for piece in read:
        is_image = not isinstance(piece, Words)
        if is_image and images == IMAGES_MAX:
            images_more += 1
            continue
        images += is_image
        kept.append(piece)
    room = PARTS_MAX if len(kept) + bool(images_more) <= PARTS_MAX else PARTS_MAX - 1
    left_out = kept[room:]
    images_left = sum(not isinstance(piece, Words) for piece in left_out)
    return kept[:room], images_more + images_left, len(left_out) - images_left


def _more(images: int, others: int) -> str:
    counted = [f"{images} images"] if images else []
    counted += [f"{others} texts"] if others else []
    return f"[left out of this result: {' and '.join(counted)}]"


def _is_flat(value: object) -> bool:
    """Whether a JSON value stays within the depth and the number of nodes that are shown as JSON;
    a lone scalar has depth 0."""
    nodes, level = 0, [value]
    for _ in range(DEPTH_MAX + 1):
        nodes += len(level)
        if nodes > NODES_MAX:
            return False
        level = [item for one in level for item in _items(one)]
        if not level:
            return True
    return False


def _items(value: object) -> Sequence[object]:
    if isinstance(value, dict):
        return list(cast("dict[str, object]", value).values())
    return cast("list[object]", value) if isinstance(value, list) else ()
