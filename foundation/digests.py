"""Digests: length-framed SHA-256, salted commitments, and the hash chain of append-only logs.

Every part of a hashed message is framed by its length, so that no two different lists of parts
have the same bytes. A chain entry commits to its body through a salt that is erased with the body:
the link still verifies afterwards, and the digest that is left cannot be guessed from likely
content.
"""

import hashlib
import struct
from functools import cache

from foundation import randomness

DIGEST_BYTES = 32
SALT_BYTES = 32

_length = struct.Struct(">Q").pack
_LENGTHS = [_length(count) for count in range(256)]


def frame(*parts: bytes) -> bytes:
    """`parts`, each behind its length as eight big-endian bytes."""
    pieces: list[bytes] = []
    for part in parts:
        count = len(part)
        pieces += (_LENGTHS[count] if count < 256 else _length(count), part)
    return b"".join(pieces)


def digest(domain: str, *parts: bytes) -> bytes:
    """SHA-256 over the framed domain and parts; 32 bytes."""
    return hashlib.sha256(_framed(domain) + frame(*parts)).digest()


@cache
def _framed(domain: str) -> bytes:
    return frame(domain.encode())


def new_salt() -> bytes:
    """A fresh salt for one commitment; 32 random bytes."""
    return randomness.take(SALT_BYTES)


_COMMITMENT = frame(b"counterfoil.commitment.v1")


def commitment(salt: bytes, body: bytes) -> bytes:
    """What a chain keeps of a body: stored openly, worthless without the salt."""
    # As `digest` does it, but a body, which may be large, is copied only once.
    framed = (_COMMITMENT, _length(len(salt)), salt, _length(len(body)), body)
    return hashlib.sha256(b"".join(framed)).digest()


class Chain:
    """The chain rule of one log: `domain` names kind and version, `log_id` the log."""

    __slots__ = ("_named",)

    def __init__(self, domain: str, log_id: str) -> None:
        self._named = frame(domain.encode(), log_id.encode())

    def next(self, previous: bytes, header: bytes, committed: bytes) -> bytes:
        """Digest of the entry with `header` and commitment `committed` behind `previous` (empty
        for the first)."""
        return hashlib.sha256(self._named + frame(previous, header, committed)).digest()
