"""One subscriber of a stream: a bounded queue between the session's feed and a connection."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from counterfoil.ledger.v1 import session_pb2, turn_pb2

from foundation.errors import Failure, Reason
from services.ledger.log_entry import Entry
from services.ledger.previews import Admission


class Limits(NamedTuple):
    """Bounds of a queue, and of one response. Previews never count against entries."""

    queue_bytes: int = 16 * 2**20
    queue_frames: int = 10_000
    preview_bytes: int = 256 * 2**10
    response_bytes: int = 2**20


class Delivery(NamedTuple):
    """An entry and its frame, shared by all subscribers."""

    entry: Entry
    frame: session_pb2.StreamFrame


class Subscriber:
    """Takes what the feed delivers, in order; a reader that lags behind the bounds is cut off.

    While history is replayed, entries behind `replay_through` queue here. Should they exceed the
    bounds, they are dropped and replayed as well.
    """

    def __init__(self, wanted: Iterable[str], limits: Limits) -> None:
        self._limits = limits
        self._previews = Admission(wanted)
        self._frames: list[session_pb2.StreamFrame] = []
        self._bytes = 0
        self._bytes_previews = 0
        self._ready = asyncio.Event()
        self._failure: Exception | None = None
        self._replaying = True
        # Positions up to here are queued, delivered or to be replayed.
        self.position = 0
        self.replay_through = 0

    @property
    def wants_previews(self) -> bool:
        """It asked for some type of preview."""
        return bool(self._previews.wanted)

    def begin(self, position: int) -> None:
        """Everything behind `position` comes from the feed."""
        self.position = self.replay_through = position

    def deliver(self, deliveries: Sequence[Delivery], through: int) -> None:
        """Queue the entries that the subscriber does not have; the log was read up to `through`."""
        waited = bool(self._frames)
        for entry, frame in deliveries:
            if entry.position > self.position:
                self._frames.append(frame)
                self._bytes += len(frame.json)
                self._previews.observe(entry)
        self.position = max(self.position, through)
        # One delivery may exceed the bounds, so that an event of any size gets through.
        if waited and (
            self._bytes > self._limits.queue_bytes or len(self._frames) > self._limits.queue_frames
        ):
            self._overflow()
        self._ready.set()

    def preview(
        self, span_id: str, preview: turn_pb2.Preview, frame: session_pb2.StreamFrame
    ) -> None:
        """Queue a preview if this subscriber takes it."""
        size = len(frame.json)
        room = self._bytes_previews + size <= self._limits.preview_bytes
        if self._previews.admit(span_id, preview, room and self._failure is None):
            self._frames.append(frame)
            self._bytes_previews += size
            self._ready.set()

    def fail(self, failure: Exception) -> None:
        """End the subscription with an error."""
        if self._failure is None:
            self._failure = failure
        self._drop()
        self._ready.set()

    def replayed(self) -> None:
        """History is delivered; from here on a full queue cuts the subscriber off."""
        self._replaying = False

    async def take(self, checkpoint_s: float) -> list[session_pb2.StreamFrame]:
        """The next frames, as many as a response holds; none when nothing came in time.

        Raises what `fail` was given.
        """
        if not self._frames and self._failure is None:
            self._ready.clear()
            late = asyncio.get_running_loop().call_later(checkpoint_s, self._ready.set)
            try:
                await self._ready.wait()
            finally:
                late.cancel()
        if self._failure is not None:
            raise self._failure
        return self._cut()

    def _cut(self) -> list[session_pb2.StreamFrame]:
        if self._bytes + self._bytes_previews <= self._limits.response_bytes:
            frames, self._frames = self._frames, []
            self._bytes = self._bytes_previews = 0
            return frames
        size, count = 0, 0
        for frame in self._frames:
            size += len(frame.json)
            if count and size > self._limits.response_bytes:
                break
            count += 1
        frames, self._frames = self._frames[:count], self._frames[count:]
        for frame in frames:
            if frame.position:
                self._bytes -= len(frame.json)
            else:
                self._bytes_previews -= len(frame.json)
        return frames

    def _overflow(self) -> None:
        if not self._replaying:
            self.fail(
                Failure(
                    Reason.ERROR_REASON_UNAVAILABLE,
                    "the subscriber reads too slowly: reconnect behind the last position",
                )
            )
            return
        self._drop()
        self.replay_through = self.position

    def _drop(self) -> None:
        self._frames = []
        self._bytes = self._bytes_previews = 0
        self._previews.reset()
