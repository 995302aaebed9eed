"""Images as small as their headers, and blocks that hold them."""

import base64
import json
import struct
from typing import Any

from services.journal.projector import Policy
from services.journal.redaction import NO_REDACTION

POLICY = Policy("wrkspc_1", NO_REDACTION)
WITHOUT_STORE = POLICY._replace(keeps_blobs=False)


def png(w: int = 3, h: int = 2, size: int = 0) -> bytes:
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", w, h)
    return head.ljust(size, b"\0")


def gif(w: int, h: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", w, h)


def jpeg(w: int, h: int) -> bytes:
    comment = b"\xff\xfe" + struct.pack(">H", 6) + b"\xff\xc0\0\0"
    frame = b"\xff\xff\xc2" + struct.pack(">HBHH", 11, 8, h, w) + b"\x01"
    return b"\xff\xd8" + comment + frame


def webp(w: int, h: int, kind: str) -> bytes:
    bodies = {
        "VP8 ": b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", w, h),
        "VP8L": b"\x2f" + struct.pack("<I", (w - 1) | (h - 1) << 14),
        "VP8X": b"\0\0\0\0" + (w - 1).to_bytes(3, "little") + (h - 1).to_bytes(3, "little"),
    }
    return b"RIFF\0\0\0\0WEBP" + kind.encode() + b"\0\0\0\0" + bodies[kind]


def image(body: bytes, media_type: str = "image/png") -> dict[str, Any]:
    data = base64.b64encode(body).decode()
    source = {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "image", "source": source}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def outcome(*blocks: Any) -> bytes:
    return json.dumps(blocks).encode()
