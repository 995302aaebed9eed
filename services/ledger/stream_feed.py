"""The feed of one session: one read of the log for all of its subscribers in this process."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from counterfoil.ledger.v1 import session_pb2, turn_pb2

from foundation import telemetry
from foundation.storage import Unavailable
from services.ledger import previews
from services.ledger.log_entry import Entry
from services.ledger.log_row import KIND_MARK, KIND_QUEUED, Planned, Row, splice
from services.ledger.stream_subscriber import Delivery, Subscriber

_log = logging.getLogger(__name__)

_WAITING_BODIES_MAX = 64
_WAITING_BODY_BYTES_MAX = 64 * 2**10

Page = tuple[Sequence[Entry], int, bool]
"""Entries behind a position, the position that was read through, and whether there may be more."""
Read = Callable[[int], Awaitable[Page]]


class Feed:
    """Where a session's log has been delivered to, and to whom.

    `position` is None until a subscriber has read the head. A wake-up only says "look again"; the
    rows of a commit of this process are delivered without a look when they fit directly.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._subscribers: set[Subscriber] = set()
        self._joining = 0
        self._dirty = False
        self._task: asyncio.Task[None] | None = None
        self._spans = previews.Spans()
        # Bodies of queued events by position, for their marks.
        self._bodies: dict[int, bytes] = {}
        self.position: int | None = None

    @property
    def unused(self) -> bool:
        """Nobody listens or is about to."""
        return not self._joining and not self._subscribers

    def expect(self) -> None:
        """A subscriber is about to read the head: wake-ups count from now on."""
        self._joining += 1

    def join(self, subscriber: Subscriber, head: int, start: int) -> None:
        """The subscriber read `head` after `expect`; the feed gives it what it does not replay.

        It replays what lies between `start` and the place where the feed is.
        """
        if self.position is None:
            self.position = head
        subscriber.begin(max(start, self.position))
        self._subscribers.add(subscriber)
        if self._dirty:
            self.wake()

    def leave(self, subscriber: Subscriber) -> None:
        """Undo `expect` and `join`."""
        self._joining -= 1
        self._subscribers.discard(subscriber)
        if self.unused and self._task is not None:
            self._task.cancel()

    def wake(self) -> None:
        """There may be entries behind `position`: read them soon."""
        self._dirty = True
        if self.position is None or (self._task is not None and not self._task.done()):
            return
        self._task = telemetry.detached(self._run(), "ledger-feed")

    def offer(self, planned: Planned) -> None:
        """These rows were committed. Deliver them now if that leaves no gap, else read."""
        reading = self._task is not None and not self._task.done()
        if self.position is None or reading or self._dirty:
            self.wake()
            return
        if not planned.rows or planned.head.position <= self.position:
            return
        if planned.rows[0].position != self.position + 1:
            self.wake()
            return
        entries = self._entries(planned.rows)
        if entries is None:
            self.wake()
            return
        self._deliver(entries, planned.head.position)

    def publish(self, span_id: str, given: Sequence[turn_pb2.Preview]) -> None:
        """Hand previews to the subscribers whose turn it is to have them."""
        if any(subscriber.wants_previews for subscriber in self._subscribers):
            self._send(span_id, self._spans.admit(span_id, given))

    def fail(self, failure: Exception) -> None:
        """End every subscription with an error."""
        for subscriber in list(self._subscribers):
            subscriber.fail(failure)

    def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._dirty and self.position is not None:
                self._dirty = False
                entries, through, more = await self._read(self.position)
                self._dirty = self._dirty or more
                if through > self.position:
                    self._deliver(entries, through)
        except Unavailable:
            # The next poll finds this session behind, and wakes it again.
            self._dirty = False
        except Exception as error:
            _log.exception("a session's feed failed")
            self._dirty = False
            self.fail(error)

    def _deliver(self, entries: Sequence[Entry], through: int) -> None:
        deliveries = [Delivery(entry, frame(entry)) for entry in entries]
        self.position = through
        for subscriber in self._subscribers:
            subscriber.deliver(deliveries, through)
        for entry in entries:
            self._remember(entry)
        for span_id, waiting in self._spans.observe(entries):
            self._send(span_id, waiting)

    def _send(self, span_id: str, given: Sequence[turn_pb2.Preview]) -> None:
        for preview in given:
            shared = previews.frame(preview)
            for subscriber in self._subscribers:
                subscriber.preview(span_id, preview, shared)

    def _remember(self, entry: Entry) -> None:
        if entry.kind == KIND_MARK:
            self._bodies.pop(entry.refers_position or 0, None)
        elif (
            entry.kind == KIND_QUEUED
            and len(entry.body) <= _WAITING_BODY_BYTES_MAX
            and len(self._bodies) < _WAITING_BODIES_MAX
        ):
            self._bodies[entry.position] = entry.body

    def _entries(self, rows: Sequence[Row]) -> list[Entry] | None:
        """Entries of rows from a commit; None when a mark's body is not at hand."""
        bodies = {row.position: row.body for row in rows if row.kind == KIND_QUEUED}
        entries: list[Entry] = []
        for row in rows:
            body: bytes | None = row.body
            if row.kind == KIND_MARK:
                refers = row.refers_position or 0
                body = bodies.get(refers) or self._bodies.get(refers)
            if body is None:
                return None
            json = splice(body, row.processed_at)
            entries.append(
                Entry(
                    row.position,
                    row.kind,
                    row.event_id,
                    row.event_type,
                    body,
                    json,
                    row.refers_position,
                )
            )
        return entries


def frame(entry: Entry) -> session_pb2.StreamFrame:
    """How an entry looks on a stream."""
    return session_pb2.StreamFrame(position=entry.position, type=entry.type, json=entry.json)
