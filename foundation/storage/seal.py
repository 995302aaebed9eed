"""Sealing: encryption at rest of sensitive columns, bound to the row that holds them.

A sealed value is `version (1) ‖ key id length (1) ‖ key id ‖ nonce (12) ‖ ciphertext and tag`,
AES-256-GCM. The additional data is everything before the nonce and the framed identity of the row,
so that a sealed value opens only in its own place and only with the key that it names.

Nonces are random: a key is good for 2^32 values (NIST SP 800-38D); rotate before that.
"""

import base64
import binascii
import json
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from foundation.durable import write_private_file
from foundation.storage.errors import ConfigurationError, SealBroken

_VERSION = 1
_KEY_BYTES = 32
_NONCE_BYTES = 12
_TAG_BYTES = 16
_KEY_ID_BYTES_MAX = 64


class SealRing:
    """The keys of a deployment: the active one seals, every one of them opens."""

    def __init__(self, active: str, keys: dict[str, bytes]) -> None:
        """`keys` maps key ids (1 to 64 bytes of UTF-8) to 32 bytes; `active` is one of the ids."""
        if active not in keys:
            raise ConfigurationError(f"seal keys: the active key {active!r} is not among the keys")
        for key_id, key in keys.items():
            if not 1 <= len(key_id.encode()) <= _KEY_ID_BYTES_MAX:
                raise ConfigurationError(f"seal keys: key id {key_id!r} must have 1 to 64 bytes")
            if len(key) != _KEY_BYTES:
                raise ConfigurationError(f"seal keys: key {key_id!r} must have 32 bytes")
        self.active = active
        self._header = _header(active)
        self._seal = AESGCM(keys[active]).encrypt
        self._open = {_header(key_id): AESGCM(key).decrypt for key_id, key in keys.items()}

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a key ring file; ConfigurationError unless it is private and well-formed."""
        return cls(*_read(path))

    @classmethod
    def generate(cls, path: Path) -> Self:
        """Create a key ring file (0600) with one new key; FileExistsError when there is one."""
        if path.exists():
            raise FileExistsError(f"{path} exists; use rotate to add a key")
        key_id = _new_key_id()
        return cls._write(path, key_id, {key_id: secrets.token_bytes(_KEY_BYTES)})

    @classmethod
    def rotate(cls, path: Path) -> Self:
        """Add a new active key to a key ring file. Old keys stay, to open what they sealed."""
        _, keys = _read(path)
        key_id = _new_key_id()
        return cls._write(path, key_id, {**keys, key_id: secrets.token_bytes(_KEY_BYTES)})

    @classmethod
    def _write(cls, path: Path, active: str, keys: dict[str, bytes]) -> Self:
        ring = cls(active, keys)
        encoded = {key_id: base64.b64encode(key).decode() for key_id, key in keys.items()}
        content = json.dumps({"active": active, "keys": encoded}, indent=2) + "\n"
        write_private_file(path, content.encode())
        return ring

    def seal(self, plaintext: bytes, *identity: str | int) -> bytes:
        """Encrypt for the row that `identity` names: table, column and key values.

        Two calls never give equal bytes. The result is 30 bytes and the key id longer.
        """
        return self.sealer(*identity).seal(plaintext)

    def sealer(self, *identity: str | int) -> "Sealer":
        """`seal` for many values whose identities begin with the same parts."""
        return Sealer(self._header, self._seal, _frame(identity))

    def open(self, sealed: bytes, *identity: str | int) -> bytes:
        """Decrypt what `seal` gave for the same identity; SealBroken otherwise."""
        return self._opened(sealed, _frame(identity))

    def opener(self, *identity: str | int) -> "Opener":
        """`open` for many values whose identities begin with the same parts."""
        return Opener(self._opened, _frame(identity))

    def _opened(self, sealed: bytes, framed: bytes) -> bytes:
        if len(sealed) < 2 or sealed[0] != _VERSION:
            raise SealBroken("sealed value has an unknown format")
        end = 2 + sealed[1]
        header = sealed[:end]
        decrypt = self._open.get(header)
        if decrypt is None:
            raise SealBroken("sealed value names a key that is not in the key ring")
        if len(sealed) < end + _NONCE_BYTES + _TAG_BYTES:
            raise SealBroken("sealed value is too short")
        nonce, body = sealed[end : end + _NONCE_BYTES], sealed[end + _NONCE_BYTES :]
        try:
            return decrypt(nonce, body, header + framed)
        except InvalidTag:
            raise SealBroken("sealed value was changed or belongs to another row") from None


class Sealer:
    """Seals for identities with the same first parts; see `SealRing.sealer`."""

    __slots__ = ("_encrypt", "_first", "_header")

    def __init__(
        self, header: bytes, encrypt: Callable[[bytes, bytes, bytes], bytes], first: bytes
    ) -> None:
        self._header = header
        self._encrypt = encrypt
        self._first = header + first

    def seal(self, plaintext: bytes, *rest: str | int) -> bytes:
        """Encrypt for the row that the first parts and these name; see `SealRing.seal`."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._encrypt(nonce, plaintext, self._first + _frame(rest))
        return self._header + nonce + sealed


class Opener:
    """Opens what was sealed for identities with the same first parts; see `SealRing.opener`."""

    __slots__ = ("_first", "_opened")

    def __init__(self, opened: Callable[[bytes, bytes], bytes], first: bytes) -> None:
        self._opened = opened
        self._first = first

    def open(self, sealed: bytes, *rest: str | int) -> bytes:
        """Decrypt what `seal` gave for the first parts and these; SealBroken otherwise."""
        return self._opened(sealed, self._first + _frame(rest))


def _header(key_id: str) -> bytes:
    encoded = key_id.encode()
    return bytes((_VERSION, len(encoded))) + encoded


def _frame(identity: tuple[str | int, ...]) -> bytes:
    """Injective: ("a", "bc"), ("ab", "c"), (1,) and ("1",) all differ."""
    framed = ""
    for part in identity:
        if isinstance(part, str):
            framed += f"s{len(part) if part.isascii() else len(part.encode())}:{part}"
        else:
            digits = str(int(part))
            framed += f"i{len(digits)}:{digits}"
    return framed.encode()


def _new_key_id() -> str:
    return f"k{secrets.token_hex(6)}"


def _read(path: Path) -> tuple[str, dict[str, bytes]]:
    what = f"seal keys file {path}"
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read()
    except OSError as error:
        raise ConfigurationError(f"{what} cannot be read: {error.strerror}") from None
    if mode & 0o077:
        raise ConfigurationError(
            f"{what} has mode {mode:04o}, so that others may read it; run: chmod 600 {path}"
        )
    try:
        document = cast("dict[str, Any]", json.loads(content))
        active, encoded = cast("str", document["active"]), cast("dict[str, str]", document["keys"])
        keys = {key_id: base64.b64decode(key, validate=True) for key_id, key in encoded.items()}
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        # The content is secret: neither it nor the parser's words about it may reach a log.
        raise ConfigurationError(
            f'{what} must be {{"active": "<key id>", "keys": {{"<key id>": "<base64>"}}}}'
        ) from None
    return active, keys
