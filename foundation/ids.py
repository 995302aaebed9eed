"""Ids: a type prefix and 26 characters of Crockford base32 (130 bits).

New things get a time-ordered id (UUIDv7, whose 128 bits are padded on the left); everything that a
retry could create again gets a deterministic one: the first 130 bits of a digest over its kind and
coordinates.
"""

import hashlib
import os
import threading
import time

from foundation import randomness
from foundation.digests import frame

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_RANDOM_BYTES = 10

PREFIXES = {
    "access": "acc",
    "agent": "agent",
    "api_key": "apikey",
    "artifact": "art",
    "blob": "blob",
    "checkpoint": "ckpt",
    "entry": "tent",
    "environment": "env",
    "event": "sevt",
    "operation": "op",
    "request": "req",
    "runner": "run",
    "session": "sesn",
    "snapshot": "snap",
    "stream": "strm",
    "thread": "sthr",
    "transition": "mtr",
    "turn": "turn",
    "workspace": "wrkspc",
}
"""Kind of thing → prefix. Clients see those of the reference contract; the others are internal."""


_DOMAINS = {kind: frame(b"counterfoil.id.v1", prefix.encode()) for kind, prefix in PREFIXES.items()}


def new(kind: str) -> str:
    """A new id of `kind`, greater than every earlier one of this process."""
    return f"{PREFIXES[kind]}_{_encode(_clock.next())}"


def derived(kind: str, *coordinates: str | int | bytes) -> str:
    """The id of the one thing of `kind` at these coordinates; the same on every call, in every
    process."""
    framed = frame(*[_part(coordinate) for coordinate in coordinates])
    digest = hashlib.sha256(_DOMAINS[kind] + framed).digest()
    return f"{PREFIXES[kind]}_{_encode(int.from_bytes(digest[:17], 'big') >> 6)}"


def copied(kind: str, thread_id: str, source_id: str) -> str:
    """The id that a thing of another thread gets as a part of the copied history of this one."""
    return derived(kind, "copy", thread_id, source_id)


def _part(coordinate: str | int | bytes) -> bytes:
    if isinstance(coordinate, str):
        return b"s" + coordinate.encode()
    if isinstance(coordinate, bytes):
        return b"b" + coordinate
    return b"i" + str(coordinate).encode()


def _encode(number: int) -> str:
    """26 characters of five bits each, in pairs; small parts, because long numbers shift slowly."""
    high, middle, low = number >> 80, number >> 30 & 0x3FFFFFFFFFFFF, number & 0x3FFFFFFF
    p = _PAIRS
    return (
        f"{p[high >> 40]}{p[high >> 30 & 1023]}{p[high >> 20 & 1023]}{p[high >> 10 & 1023]}"
        f"{p[high & 1023]}{p[middle >> 40]}{p[middle >> 30 & 1023]}{p[middle >> 20 & 1023]}"
        f"{p[middle >> 10 & 1023]}{p[middle & 1023]}{p[low >> 20]}{p[low >> 10 & 1023]}"
        f"{p[low & 1023]}"
    )


class _Clock:
    """UUIDv7 values in strictly rising order: a clock that stands still or steps back counts on
    instead."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        with self._lock:
            millis = time.time_ns() // 1_000_000
            random = int.from_bytes(randomness.take(_RANDOM_BYTES), "big")
            value = (millis << 80) | (7 << 76) | ((random >> 66) << 64 & 0xFFF << 64)
            value |= (0b10 << 62) | (random & ((1 << 62) - 1))
            if value <= self._last:
                value = self._last + 1
            self._last = value
            return value

    def forked(self) -> None:
        """A fork must not repeat its parent's values; another thread may have held the lock."""
        self.__init__()


_clock = _Clock()
os.register_at_fork(after_in_child=_clock.forked)
