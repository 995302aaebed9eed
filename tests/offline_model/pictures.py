"""Images and documents of any size, as base64: only what is read of them is true."""

import base64
import struct
from typing import Any


def png(width: int, height: int) -> bytes:
    """The beginning of a PNG."""
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0)


def jpeg(width: int, height: int, *, profile_bytes: int = 0) -> bytes:
    """With a thumbnail's table and a profile in front of the size, as cameras write it."""
    profile = b"".join(
        b"\xff\xe2" + struct.pack(">H", 60_002) + bytes(60_000)
        for _ in range(profile_bytes // 60_000)
    )
    tables = b"\xff\xe0" + struct.pack(">H", 16) + bytes(14) + b"\xff\xff\xc4\x00\x04\0\0"
    size = b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + profile + tables + size


def webp(kind: bytes, width: int, height: int) -> bytes:
    if kind == b"VP8 ":
        rest = bytes(4) + b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
    elif kind == b"VP8L":
        rest = bytes(4) + b"\x2f" + struct.pack("<I", width - 1 | height - 1 << 14)
    else:
        rest = bytes(8) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\0\0\0\0WEBP" + kind + rest


def pdf(pages: int, *, compressed: bool = False) -> bytes:
    tree = b"1 0 obj << /Type /Pages /Count %d >> endobj " % pages
    return b"%PDF-1.7 " + tree + (b"" if compressed else b"2 0 obj << /Type /Page >> " * pages)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def image(data: bytes, media_type: str = "image/png") -> dict[str, Any]:
    source = {"type": "base64", "media_type": media_type, "data": encoded(data)}
    return {"type": "image", "source": source}


def document(data: bytes) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "application/pdf", "data": encoded(data)}
    return {"type": "document", "source": source}
