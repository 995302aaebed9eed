"""Reduced history in memory, so that a round costs what is new.

An entry is taken out while it is worked on and put back afterwards: two requests for one thread
never share one, and after an error nothing half-done stays. What is missing is read again. What was
forgotten meanwhile, because the thread was deleted, does not come back.
"""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, Self

from services.context.materializer import materialize
from services.context.recipe import ThreadKey
from services.context.reducer import Effective, Use


class RunningHash(Protocol):
    """A hash that can go on from where it is."""

    def update(self, data: "bytes | memoryview", /) -> None:
        """Hash more."""
        ...

    def copy(self) -> Self:
        """Another one at the same place."""
        ...

    def digest(self) -> bytes:
        """What was hashed so far."""
        ...


BYTES_MAX = 64 * 2**20
"""Bytes of messages that are kept in memory by default."""


@dataclass
class Warm:
    """A thread's history as message bytes, through the transcript head (`seq`, `digest`)."""

    seq: int = 0
    digest: bytes = b""
    messages: bytearray = field(default_factory=bytearray)
    open: tuple[Use, ...] = ()
    stored: tuple[bytes, ...] = ()
    """The parts that its last snapshot had: head and pins."""
    _hash_head: bytes = b""
    _hash: RunningHash | None = None
    _hashed: int = 0

    def extend(self, effective: Effective, seq: int, digest: bytes) -> None:
        """Go on to a later head: `effective` is the reduction of what lies between."""
        new = materialize(effective.items)
        if new and self.messages:
            self.messages += b","
        self.messages += b",".join(new)
        self.open = effective.open
        self.seq, self.digest = seq, digest

    def request(self, head: bytes, tail: bytes) -> tuple[bytes, bytes]:
        """The request's bytes and their SHA-256; only what is new since the last one is hashed."""
        if self._hash is None or self._hash_head != head:
            self._hash, self._hash_head, self._hashed = hashlib.sha256(head), head, 0
        with memoryview(self.messages) as messages, messages[self._hashed :] as new:
            self._hash.update(new)
        self._hashed = len(self.messages)
        digest = self._hash.copy()
        digest.update(tail)
        return b"".join((head, self.messages, tail)), digest.digest()


@dataclass
class Loan:
    """A thread on loan: what was warm when it began, and what goes back at its end."""

    warm: Warm | None
    back: Warm | None = None


class WarmCache:
    """Warm threads, the least recently used ones dropped first."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._threads: OrderedDict[ThreadKey, tuple[Warm, int]] = OrderedDict()
        self._loans: Counter[ThreadKey] = Counter()
        self._forgotten: set[ThreadKey] = set()

    @contextmanager
    def loan(self, key: ThreadKey) -> Generator[Loan]:
        """Take a thread out; what the block leaves in `back` is kept."""
        loan = Loan(self.take(key))
        self._loans[key] += 1
        try:
            yield loan
        finally:
            if loan.back is not None and key not in self._forgotten:
                self.put(key, loan.back)
            self._loans[key] -= 1
            if self._loans[key] == 0:
                del self._loans[key]
                self._forgotten.discard(key)

    def forget(self, key: ThreadKey) -> None:
        """Drop a thread, also what is out on loan."""
        self.take(key)
        if key in self._loans:
            self._forgotten.add(key)

    def take(self, key: ThreadKey) -> Warm | None:
        """Take a thread out; the caller may change it."""
        found = self._threads.pop(key, None)
        if found is None:
            return None
        self._bytes -= found[1]
        return found[0]

    def put(self, key: ThreadKey, warm: Warm) -> None:
        """Put a thread back, or drop it when it alone is too large."""
        self.take(key)
        size = len(warm.messages)
        if size > self._bytes_max:
            return
        self._threads[key] = (warm, size)
        self._bytes += size
        while self._bytes > self._bytes_max:
            _, (_, dropped) = self._threads.popitem(last=False)
            self._bytes -= dropped
