"""An outcome's content blocks as pieces that a projection can hold: words and pictures. Pure.

Nothing that enters here leaves as an address to fetch, as inline bytes, or as an error's text.
"""

import base64
import binascii
import json
import re
from typing import Any, NamedTuple, cast

from foundation import canonical
from foundation.artifacts import IMAGE_BASE64_MAX, IMAGE_BYTES_MAX
from services.journal.images import sniff
from services.journal.redaction import Redactor

IMAGE_EDGE_MAX = 2000
_DIGITS_MAX = 4_000
"""Python refuses to read longer integers; they are text in canonical JSON anyway."""

_TOO_LARGE = "it is larger than 3.75 MiB"
_INLINE_CHARS_MIN = 512
_INLINE = re.compile(rf"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{{{_INLINE_CHARS_MIN},}}={{0,2}}")
_INLINE_IMAGE = re.compile(r"iVBORw0KGg|/9j/|_9j_|R0lGOD|UklGR")
"""How the base64 of a PNG, JPEG, GIF or WebP image begins."""


class Words(NamedTuple):
    """Text, in its canonical form."""

    text: str


class Picture(NamedTuple):
    """An image that may be kept: its bytes, media type, and width and height in pixels."""

    body: bytes
    media_type: str
    w: int
    h: int


class Document(NamedTuple):
    """A JSON value that is not a list of content blocks; it holds no inline bytes."""

    value: object


Piece = Words | Picture


def read(content: bytes, redactor: Redactor) -> list[Piece] | Document:
    """The pieces of a JSON array of content blocks, empty bytes for none; any other JSON value as
    it is. Raises ValueError for what is not JSON."""
    if not content:
        return []
    value = redactor.value(_parsed(content))
    items = _items(value)
    blocks = [_members(item) for item in items or ()]
    if items is not None and all(isinstance(block.get("type"), str) for block in blocks):
        return [_piece(block) for block in blocks]
    return Document(without_inline(value))


def words(text: str) -> Words:
    """Text without inline images, canonical."""
    if len(text) >= _INLINE_CHARS_MIN:
        text = _INLINE.sub(_without_image, text)
    return Words(canonical.text(text))


def without_inline(value: object) -> object:
    """A JSON value in which a note stands for every string of base64."""
    if isinstance(value, str):
        if len(value) >= _INLINE_CHARS_MIN and _INLINE.fullmatch(value):
            return _not_kept(len(value))
        return words(value).text
    if isinstance(value, list):
        return [without_inline(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return _object(
            [
                (words(key).text, without_inline(member))
                for key, member in cast("dict[str, object]", value).items()
            ]
        )
    return value


def _without_image(found: re.Match[str]) -> str:
    run = found.group()
    mark = _INLINE_IMAGE.search(run)
    if mark is None or len(run) - mark.start() < _INLINE_CHARS_MIN:
        return run
    return _not_kept(len(run))


def _not_kept(count: int) -> str:
    return f"[{count:,} characters of base64 not kept]"


def _piece(block: dict[str, object]) -> Piece:
    source = _members(block.get("source"))
    match block["type"]:
        case "text" if isinstance(block.get("text"), str):
            return words(str(block["text"]))
        case "image" if source:
            return image(source)
        case "document" if source:
            return words(_document(block, source))
        case "search_result" if isinstance(block.get("content"), list):
            return words(_search_result(block))
        case _:
            return Words(canonical.encode(without_inline(block)).decode())


def image(source: dict[str, object]) -> Piece:
    """The picture in the source of an image block, or words that say why there is none."""
    data = source.get("data")
    if source.get("type") != "base64" or not isinstance(data, str):
        return _no_image(_elsewhere(source))
    if len(data) > IMAGE_BASE64_MAX:
        return _no_image(_TOO_LARGE)
    try:
        body = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return _no_image("it is not valid base64")
    return _picture(body)


def _picture(body: bytes) -> Piece:
    if len(body) > IMAGE_BYTES_MAX:
        return _no_image(_TOO_LARGE)
    sniffed = sniff(body)
    if sniffed is None:
        return _no_image("it is not PNG, JPEG, WebP or GIF")
    if not sniffed.w:
        return _no_image("its header does not tell its width and height")
    if max(sniffed.w, sniffed.h) > IMAGE_EDGE_MAX:
        return _no_image(f"it is wider or higher than {IMAGE_EDGE_MAX} pixels")
    return Picture(body, *sniffed)


def _no_image(reason: str) -> Words:
    return Words(f"[image not kept: {reason}]")


def _elsewhere(source: dict[str, object]) -> str:
    """Why a source brings no bytes."""
    kinds = {"url": "its source is an address", "file": "its source is a file"}
    return kinds.get(str(source.get("type")), "its source is of an unknown kind")


def _document(block: dict[str, object], source: dict[str, object]) -> str:
    about = [
        f"{label}: {block[name]}"
        for label, name in (("Document", "title"), ("Context", "context"))
        if isinstance(block.get(name), str) and block[name]
    ]
    data = source.get("data")
    if source.get("type") == "text" and isinstance(data, str):
        return "\n".join([*about, data])
    inline = source.get("type") == "base64" and isinstance(data, str)
    reason = "only documents of plain text are shown" if inline else _elsewhere(source)
    return "\n".join([*about, f"[document not kept: {reason}]"])


def _search_result(block: dict[str, object]) -> str:
    lines = [
        f"{label}: {block[name]}"
        for label, name in (("Search result", "title"), ("Source", "source"))
        if isinstance(block.get(name), str) and block[name]
    ]
    for piece in cast("list[object]", block["content"]):
        text = _members(piece).get("text")
        if isinstance(text, str):
            lines.append(text)
    return "\n".join(lines)


def _items(value: object) -> list[object] | None:
    return cast("list[object]", value) if isinstance(value, list) else None


def _members(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _parsed(content: bytes) -> object:
    return json.loads(
        content.decode(),
        object_pairs_hook=_object,
        parse_constant=_no_constant,
        parse_int=_integer,
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key is named twice")
    return members


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _DIGITS_MAX else digits
