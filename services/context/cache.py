"""Reduced history in memory, so that a round costs what is new.

An entry is taken out while it is worked on and put back afterwards: two requests for one thread
never share one, and after an error nothing half-done stays. What is missing is read again. What was
forgotten meanwhile, because the thread was deleted, does not come back.
"""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import NamedTuple, Protocol, Self

from counterfoil.types.v1.runtime_pb2 import SessionRuntime

from services.context.admission import Anchor
from services.context.estimates import text_tokens
from services.context.losses import NO_LOSSES, Losses
from services.context.materializer import Blobs, materialize
from services.context.recipe import Frame, ThreadKey, frame_of
from services.context.reducer import Item, Use


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


class Messages(NamedTuple):
    """A history as joined messages, and what has to be known of it to go on."""

    joined: bytes = b""
    media_bytes: int = 0
    media_tokens: int = 0
    image_bytes: int = 0
    anchor: Anchor | None = None


class Warm:
    """A thread's history as message bytes, through the transcript head (`seq`, `digest`).

    The messages lie where the last request was made: in front of them its head, behind them its
    tail. So the next one is made by writing what is new, and none of the rest is copied, provided
    that nobody still holds the bytes of the last one. It is of one state of the thread's losses:
    another one is another history.
    """

    def __init__(
        self,
        seq: int = 0,
        digest: bytes = b"",
        messages: Messages = Messages(),  # noqa: B008 - immutable
        losses: Losses = NO_LOSSES,
    ) -> None:
        self.seq = seq
        self.digest = digest
        self.losses = losses
        self.open: tuple[Use, ...] = ()
        self.stored: tuple[bytes, ...] = ()
        """Where the frame's parts are stored for this thread; empty while that is not known."""
        self.kept_seq = seq
        """Through where it is kept for later processes; see `prefixes`."""
        self.image_bytes = messages.image_bytes
        """Bytes of result images in it; see `materialize`."""
        self.anchor = messages.anchor
        """The newest answer that was measured."""
        self.snapshot_id = ""
        """The newest snapshot that was made of it with this frame; empty for none."""
        self.trusted_id = ""
        """A snapshot that it is known to begin with, frame included; empty for none."""
        self._media_bytes = messages.media_bytes
        self.media_tokens = messages.media_tokens
        """What the media in its messages cost."""
        self._bytes = len(messages.joined) + 1 if messages.joined else 0
        self._frame: Frame | None = None
        self._new = [messages.joined] if messages.joined else []
        """Messages that no request has had yet."""
        self._new_bytes = len(messages.joined)
        self._made = BytesIO()
        self._head = b""
        self._end = 0
        self._hash: RunningHash = hashlib.sha256()
        self._hashed = 0

    @property
    def size(self) -> int:
        """Bytes of its messages, and of what stands around them."""
        frame = 0 if self._frame is None else self._frame.size
        return self._end + self._new_bytes + frame

    @property
    def tokens(self) -> int:
        """Estimated tokens of its messages."""
        return text_tokens(self.text_bytes) + self.media_tokens

    @property
    def text_bytes(self) -> int:
        """Bytes of its messages that are no media."""
        return max(0, self._bytes - 1) - self._media_bytes

    def frame(self, runtime: SessionRuntime) -> Frame:
        """What stands around the messages; made anew only when the runtime is another."""
        if self._frame is None or self._frame.runtime != runtime:
            self._frame, self.stored = frame_of(runtime), ()
            self.snapshot_id = self.trusted_id = ""
        return self._frame

    def extend(self, items: Sequence[Item], blobs: Blobs) -> None:
        """Write further items of its history."""
        made = materialize(items, blobs, self.image_bytes)
        self.image_bytes = made.image_bytes
        for item, message in made.messages:
            self._new.append(message.body)
            self._new_bytes += len(message.body)
            self._bytes += len(message.body) + 1
            self._media_bytes += message.media_bytes
            self.media_tokens += message.media_tokens
            if item.measured_tokens:
                self.anchor = Anchor(item.snapshot_id, item.measured_tokens, self.tokens)
                if item.snapshot_id == self.snapshot_id:
                    self.trusted_id = item.snapshot_id

    def reach(self, seq: int, digest: bytes, open: tuple[Use, ...]) -> None:
        """All items through this head are written."""
        self.open, self.seq, self.digest = open, seq, digest

    @property
    def is_empty(self) -> bool:
        """Whether there is no message."""
        return self._end == len(self._head) and not self._new

    def messages(self) -> Messages:
        """All messages, joined by commas."""
        media = (self._media_bytes, self.media_tokens)
        return Messages(b"".join(self._parts()), *media, self.image_bytes, self.anchor)

    def request(self, head: bytes, tail: bytes) -> tuple[bytes, bytes]:
        """The request's bytes and their SHA-256; only what is new since the last one is hashed."""
        if self._end == 0 or self._head != head:
            made = b"".join((head, *self._parts(), tail))
            self._made, self._head, self._end = BytesIO(made), head, len(made) - len(tail)
            self._hash, self._hashed = hashlib.sha256(), 0
            del made  # whoever holds the bytes makes the next request copy them
        else:
            self._go_on(tail)
        self._new, self._new_bytes = [], 0
        with self._made.getbuffer() as view, view[self._hashed : self._end] as new:
            self._hash.update(new)
        self._hashed = self._end
        digest = self._hash.copy()
        digest.update(tail)
        return self._made.getvalue(), digest.digest()

    def _parts(self) -> list[bytes | memoryview]:
        """All messages, with the commas between them."""
        made = memoryview(self._made.getvalue())[len(self._head) : self._end]
        parts: list[bytes | memoryview] = [made] if made else []
        for part in self._new:
            parts += (b",", part) if parts else (part,)
        return parts

    def _go_on(self, tail: bytes) -> None:
        """Write what is new, and the tail, over the last tail."""
        self._made.seek(self._end)
        for part in self._new:
            if self._end > len(self._head):
                self._end += self._made.write(b",")
            self._end += self._made.write(part)
        self._made.write(tail)
        self._made.truncate()


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
        size = warm.size
        if size > self._bytes_max:
            return
        self._threads[key] = (warm, size)
        self._bytes += size
        while self._bytes > self._bytes_max:
            _, (_, dropped) = self._threads.popitem(last=False)
            self._bytes -= dropped
