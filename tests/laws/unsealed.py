"""Reads every sealed value of a database without knowing whose it is: for scans alone.

What is sealed is AES-GCM, whose text is a key stream's; the tag, which proves the place, is left
out. So a scan needs no list of tables, and finds what somebody forgot to erase.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_NONCE_BYTES = 12
_TAG_BYTES = 16
_FIRST_BLOCK = (2).to_bytes(4, "big")


class Unsealer:
    """Holds the keys of a deployment."""

    def __init__(self, keys: Mapping[bytes, bytes]) -> None:
        self._keys = keys

    @classmethod
    def of(cls, folder: Path, environment: Mapping[str, str]) -> Self:
        """The keys of a system on a data folder."""
        named = environment.get("COUNTERFOIL_SEAL_KEYS_FILE")
        path = Path(named) if named else next(folder.glob("*seal*"))
        keys = json.loads(path.read_text())["keys"]
        return cls({id.encode(): base64.b64decode(key) for id, key in keys.items()})

    def opened(self, value: object) -> bytes:
        """The text of a sealed value; every other value as it is printed."""
        if not isinstance(value, bytes):
            return str(value).encode()
        for id, key in self._keys.items():
            header = bytes([1, len(id)]) + id
            if value.startswith(header):
                nonce = value[len(header) : len(header) + _NONCE_BYTES]
                body = value[len(header) + _NONCE_BYTES : -_TAG_BYTES]
                stream = Cipher(algorithms.AES(key), modes.CTR(nonce + _FIRST_BLOCK)).decryptor()
                return stream.update(body) + stream.finalize()
        return value
