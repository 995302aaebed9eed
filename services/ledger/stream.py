"""Streams: every entry of a session's log in order, from any position, then live.

hub = Hub(db, ring, probe)
kernel.spawn(hub.run(), "ledger-hub")     # hears other processes, looks again every 1.5 s
…
async with db.commit(…): …                # after the block, not inside it:
hub.wake(workspace_id, session_id, planned)
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Sequence

from counterfoil.ledger.v1 import session_pb2, turn_pb2

from foundation.errors import Failure, Reason, invalid, not_found
from foundation.storage import Database, SealRing, Unavailable
from services.ledger import log_entry, log_page_store
from services.ledger.log_cursor import POSITION_MAX
from services.ledger.log_probe import SessionProbe
from services.ledger.log_row import Planned
from services.ledger.log_types import SESSION_DELETED, TERMINATED
from services.ledger.stream_feed import Feed, Page, frame
from services.ledger.stream_subscriber import Limits, Subscriber

_log = logging.getLogger(__name__)

_CHANNEL = "counterfoil_ledger_log"
_PAGE_ROWS = 500
_PAGE_BYTES = 2**20
_POLL_S = 1.5
_CHECKPOINT_S = 5.0
_LIMITS = Limits()
_LAST = (SESSION_DELETED, TERMINATED)


class Hub:
    """The feeds of this process, by session, and what wakes them.

    A lost wake-up delays an entry by `poll_s` and one read. Nothing is kept for a session without
    subscribers.
    """

    def __init__(
        self,
        db: Database,
        ring: SealRing,
        probe: SessionProbe,
        *,
        limits: Limits = _LIMITS,
        poll_s: float = _POLL_S,
        checkpoint_s: float = _CHECKPOINT_S,
    ) -> None:
        self._db = db
        self._ring = ring
        self._probe = probe
        self._limits = limits
        self._poll_s = poll_s
        self._checkpoint_s = checkpoint_s
        self._feeds: dict[tuple[str, str], Feed] = {}
        # Tells our own notifications, which we need not hear, from those of other processes.
        self._name = secrets.token_hex(8)
        self.subscribers = 0

    async def run(self) -> None:
        """Hear the wake-ups of other processes, and look for missed ones, until cancelled."""
        listening = False
        try:
            while True:
                try:
                    if not listening:
                        await self._db.listen(_CHANNEL, self._heard)
                        listening = True
                    await self._poll()
                except Unavailable:
                    _log.warning("the log cannot be read for streams; trying again")
                await asyncio.sleep(self._poll_s)
        finally:
            self.close()
            if listening:
                await self._db.unlisten(_CHANNEL, self._heard)

    def close(self) -> None:
        """End every stream; its client reconnects elsewhere."""
        for feed in list(self._feeds.values()):
            feed.close()
            feed.fail(Failure(Reason.ERROR_REASON_UNAVAILABLE, "the ledger stops: reconnect"))

    def wake(self, workspace_id: str, session_id: str, planned: Planned | None = None) -> None:
        """Entries were committed. Call it after the commit, for each; never blocks, never raises.

        With the committed plan, its subscribers here are served without a read.
        """
        self._db.notify_soon(_CHANNEL, f"{self._name} {workspace_id} {session_id}")
        feed = self._feeds.get((workspace_id, session_id))
        if feed is None:
            return
        if planned is None:
            feed.wake()
        else:
            feed.offer(planned)

    def publish(
        self,
        workspace_id: str,
        session_id: str,
        span_event_id: str,
        previews: Sequence[turn_pb2.Preview],
    ) -> None:
        """Hand previews of a span to the subscribers that may have them; the rest is dropped."""
        feed = self._feeds.get((workspace_id, session_id))
        if feed is not None:
            feed.publish(span_event_id, previews)

    async def stream(
        self, workspace_id: str, request: session_pb2.StreamEventsRequest
    ) -> AsyncGenerator[session_pb2.StreamEventsResponse]:
        """The responses of a subscription; the first is empty and says that it is active.

        Raises NOT_FOUND before it, INVALID_FIELD for a position that the log has not reached,
        UNAVAILABLE when the subscriber reads too slowly, CORRUPT for a body that does not open.
        """
        session_id = request.session_id
        key = workspace_id, session_id
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = Feed(lambda after: self._page(*key, after, POSITION_MAX))
        subscriber = Subscriber(request.event_deltas, self._limits)
        feed.expect()
        self.subscribers += 1
        try:
            position, over = await self._start(feed, subscriber, workspace_id, request)
            yield session_pb2.StreamEventsResponse(position_through=position, end=over)
            if over:
                return
            while position < subscriber.replay_through:
                response = await self._replay(key, position, subscriber.replay_through)
                position = response.position_through
                yield response
                if response.end:
                    return
            subscriber.replayed()
            while True:
                frames = await subscriber.take(self._checkpoint_s)
                response = _response(frames, position)
                position = response.position_through
                yield response
                if response.end:
                    return
        finally:
            self.subscribers -= 1
            feed.leave(subscriber)
            if feed.unused and self._feeds.get(key) is feed:
                del self._feeds[key]

    async def _start(
        self,
        feed: Feed,
        subscriber: Subscriber,
        workspace_id: str,
        request: session_pb2.StreamEventsRequest,
    ) -> tuple[int, bool]:
        """Where the subscription begins, and whether nothing will ever follow."""
        found = await self._probe(self._db, workspace_id, request.session_id)
        if found is None or found.deleted:
            raise not_found("session", request.session_id)
        head = found.head.position
        start = request.position_after if request.HasField("position_after") else head
        if start > head:
            raise invalid("position_after", f"the log has reached {head}, not {start}")
        feed.join(subscriber, head, start)
        return start, found.terminated and start == head

    async def _replay(
        self, key: tuple[str, str], after: int, through: int
    ) -> session_pb2.StreamEventsResponse:
        entries, position, _ = await self._page(*key, after, through)
        if position <= after:
            raise Failure(Reason.ERROR_REASON_CORRUPT, f"the log of session {key[1]} has a gap")
        return _response([frame(entry) for entry in entries], position)

    async def _page(self, workspace_id: str, session_id: str, after: int, through: int) -> Page:
        rows = await log_page_store.entries(
            self._db, workspace_id, session_id, after, through, _PAGE_ROWS, _PAGE_BYTES
        )
        if not rows:
            return (), after, False
        read = (log_entry.read(self._ring, workspace_id, session_id, row) for row in rows)
        entries = [entry for entry in read if entry is not None]
        if rows[-1]["position"] != after + len(rows):
            raise Failure(Reason.ERROR_REASON_CORRUPT, f"the log of session {session_id} has a gap")
        size = sum(len(row["body"] or b"") for row in rows)
        more = len(rows) == _PAGE_ROWS or size >= _PAGE_BYTES
        return entries, rows[-1]["position"], more

    async def _poll(self) -> None:
        watched = [
            (*key, feed.position) for key, feed in self._feeds.items() if feed.position is not None
        ]
        if not watched:
            return
        for key in await log_page_store.behind(self._db, watched):
            feed = self._feeds.get(key)
            if feed is not None:
                feed.wake()

    def _heard(self, payload: str | None) -> None:
        if payload is None:
            for feed in self._feeds.values():
                feed.wake()
            return
        sender, _, session = payload.partition(" ")
        feed = None if sender == self._name else self._feeds.get(_key(session))
        if feed is not None:
            feed.wake()


def _key(text: str) -> tuple[str, str]:
    workspace_id, _, session_id = text.partition(" ")
    return workspace_id, session_id


def _response(
    frames: list[session_pb2.StreamFrame], position: int
) -> session_pb2.StreamEventsResponse:
    """A batch; `position` is that before it, or that which was read through."""
    for shared in reversed(frames):
        if shared.position:
            position = max(position, shared.position)
            break
    end = any(shared.type in _LAST for shared in frames[-1:])
    return session_pb2.StreamEventsResponse(frames=frames, position_through=position, end=end)
