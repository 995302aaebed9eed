"""Ids: a type prefix and 26 characters of Crockford base32 (130 bits).

New things get a time-ordered id (UUIDv7, whose 128 bits are padded on the left); everything that a
retry could create again gets a deterministic one: the first 130 bits of a digest over its kind and
coordinates.
"""

import hashlib
import os
import threading
import time

from foundation.digests import frame

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_CHARACTERS = 26
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]

PREFIXES = {
    "access": "acc",
    "agent": "agent",
    "api_key": "apikey",
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
    "turn": "turn",
    "workspace": "wrkspc",
}
"""Kind of thing → prefix. Clients see those of the reference contract; the others are internal."""


def new(kind: str) -> str:
    """A new id of `kind`, greater than every earlier one of this process."""
    return f"{PREFIXES[kind]}_{_encode(_clock.next())}"


def derived(kind: str, *coordinates: str | int | bytes) -> str:
    """The id of the one thing of `kind` at these coordinates; the same on every call, in every
    process."""
    parts = [PREFIXES[kind].encode(), *(_part(c) for c in coordinates)]
    digest = hashlib.sha256(frame(b"counterfoil.id.v1", *parts)).digest()
    return f"{PREFIXES[kind]}_{_encode(int.from_bytes(digest[:17], 'big') >> 6)}"


def _part(coordinate: str | int | bytes) -> bytes:
    if isinstance(coordinate, bytes):
        return b"b" + coordinate
    if isinstance(coordinate, str):
        return b"s" + coordinate.encode()
    return b"i" + str(coordinate).encode()


def _encode(number: int) -> str:
    pairs: list[str] = []
    for _ in range(_CHARACTERS // 2):
        pairs.append(_PAIRS[number & 1023])
        number >>= 10
    pairs.reverse()
    return "".join(pairs)


class _Clock:
    """UUIDv7 values in strictly rising order: a clock that stands still or steps back counts on
    instead."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._pid = 0

    def next(self) -> int:
        with self._lock:
            if self._pid != os.getpid():  # a fork must not repeat its parent's values
                self._pid, self._last = os.getpid(), 0
            millis = time.time_ns() // 1_000_000
            random = int.from_bytes(os.urandom(10), "big")
            value = (millis << 80) | (7 << 76) | ((random >> 66) << 64 & 0xFFF << 64)
            value |= (0b10 << 62) | (random & ((1 << 62) - 1))
            if value <= self._last:
                value = self._last + 1
            self._last = value
            return value


_clock = _Clock()
