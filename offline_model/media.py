"""Sizes of images and documents, read from their first bytes. Pure; nothing is decoded further."""

import base64
import binascii
import re
import struct

_HEAD_CHARS = 64 * 1024
_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_PAGES = re.compile(rb"/Count\s+(\d{1,9})")
_JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})


def image_size(encoded: str) -> tuple[int, int] | None:
    """(width, height) in pixels of a base64 PNG, GIF, JPEG or WebP; None for anything else."""
    head = _decoded(encoded[:_HEAD_CHARS])
    return _size(head) or (_size(_decoded(encoded)) if len(encoded) > _HEAD_CHARS else None)


def pdf_pages(encoded: str) -> int:
    """Pages of a base64 PDF, at least 1; objects in compressed streams count by their page tree."""
    data = _decoded(encoded)
    counts = [int(found) for found in _PAGES.findall(data)]
    return max(1, len(_PAGE.findall(data)), *counts)


def _decoded(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return b""


def _size(data: bytes) -> tuple[int, int] | None:
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            width, height = struct.unpack_from(">II", data, 16)
        elif data.startswith((b"GIF87a", b"GIF89a")):
            width, height = struct.unpack_from("<HH", data, 6)
        elif data.startswith(b"\xff\xd8"):
            return _jpeg(data)
        elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return _webp(data)
        else:
            return None
    except (struct.error, IndexError):
        return None
    return width, height


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        if marker == 0xFF:
            at += 1
        elif marker in _JPEG_ALONE:
            at += 2
        else:
            at += 2 + struct.unpack_from(">H", data, at + 2)[0]
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        wide, high = data[24:27], data[27:30]
        if len(high) == 3:
            return int.from_bytes(wide, "little") + 1, int.from_bytes(high, "little") + 1
    return None
