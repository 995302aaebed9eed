"""What kind of image some bytes are, and how large: read from their header, never from a claim.
Pure and total."""

import struct
from typing import NamedTuple

_PNG = b"\x89PNG\r\n\x1a\n"
_GIFS = (b"GIF87a", b"GIF89a")
_JPEG = b"\xff\xd8\xff"
_JPEG_WITHOUT_LENGTH = frozenset((0x01, *range(0xD0, 0xD8)))
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_ENDS = frozenset((0xD9, 0xDA))


class Sniffed(NamedTuple):
    """Media type, and width and height in pixels; 0 each where the header does not tell."""

    media_type: str
    w: int
    h: int


def sniff(data: bytes) -> Sniffed | None:
    """PNG, JPEG, WebP or GIF; None for anything else."""
    if data.startswith(_PNG):
        return _sized("image/png", _png(data))
    if data.startswith(_GIFS):
        return _sized("image/gif", _unpacked("<HH", data, 6))
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _sized("image/webp", _webp(data))
    if data.startswith(_JPEG):
        return _sized("image/jpeg", _jpeg(data))
    return None


def _sized(media_type: str, size: tuple[int, ...]) -> Sniffed:
    w, h = size if len(size) == 2 and min(size) > 0 else (0, 0)
    return Sniffed(media_type, w, h)


def _unpacked(form: str, data: bytes, offset: int) -> tuple[int, ...]:
    if offset + struct.calcsize(form) > len(data):
        return ()
    return struct.unpack_from(form, data, offset)


def _png(data: bytes) -> tuple[int, ...]:
    return _unpacked(">II", data, 16) if data[12:16] == b"IHDR" else ()


def _webp(data: bytes) -> tuple[int, ...]:
    kind = data[12:16]
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        return tuple(value & 0x3FFF for value in _unpacked("<HH", data, 26))
    if kind == b"VP8L" and data[20:21] == b"\x2f" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8X" and len(data) >= 30:
        w, h = (int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
        return 1 + w, 1 + h
    return ()


def _jpeg(data: bytes) -> tuple[int, ...]:
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in _JPEG_FRAMES:
            return _unpacked(">HH", data, at + 5)[::-1]
        elif marker in _JPEG_ENDS:
            return ()
        elif marker in _JPEG_WITHOUT_LENGTH:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return ()
