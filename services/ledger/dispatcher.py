"""Hands claimable turns to attached runners, and tells them of interrupts and lost claims.

A committed change wakes it in this process, and other processes hear of what cannot be done here.
Every second it looks for what was missed: a lost wake-up costs a second, never a turn.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial

import structlog
from counterfoil.ledger.v1 import turn_pb2

from foundation import ids, telemetry
from foundation.storage import Database, Unavailable
from services.ledger import claiming, lease_store, session_store
from services.ledger.change import Change
from services.ledger.lane import Ended
from services.ledger.lanes import Lanes
from services.ledger.releases import Releases
from services.ledger.streams import Key, RunnerStream, stream_prefix

_CHANNEL = "counterfoil_ledger_turns"
_RESCAN_S = 1.0
_FREE_AFTER_S = 1.0
_ERASURE_AGAIN_S = 15.0
_ERASURES_AT_ONCE = 16
_CLAIMERS_MAX = 4

_log = structlog.get_logger("counterfoil.ledger.dispatcher")


class Dispatcher:
    """The runner streams of this process, and the claims made for them."""

    def __init__(
        self,
        db: Database,
        lanes: Lanes,
        *,
        free_after_s: float = _FREE_AFTER_S,
        rescan_s: float = _RESCAN_S,
        boots: str = "",
    ) -> None:
        self._stream_prefix = stream_prefix(boots)
        self._db = db
        self._lanes = lanes
        self.releases = Releases(lanes)
        self._free_after_s = free_after_s
        self._rescan_s = rescan_s
        self._streams: dict[str, RunnerStream] = {}
        self._targets: deque[tuple[str, str]] = deque()
        self._scan = False
        self._closed = False
        self._claimers: set[asyncio.Task[None]] = set()
        self._background: set[asyncio.Task[None]] = set()
        lanes.subscribe(self._committed)

    async def run(self) -> None:
        """Hear other processes and rescan, until cancelled."""
        listening = False
        try:
            while True:
                try:
                    if not listening:
                        await self._db.listen(_CHANNEL, self._heard)
                        listening = True
                    await self.rescan()
                except Unavailable:
                    _log.warning("the ledger's database is not reachable; trying again")
                await asyncio.sleep(self._rescan_s)
        finally:
            await self.close()
            if listening:
                await self._db.unlisten(_CHANNEL, self._heard)

    async def close(self) -> None:
        """Stop claiming; what runners hold stays theirs until it expires."""
        self._closed = True
        tasks = (*self._claimers, *self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def rescan(self) -> None:
        """Free what expired, look for turns to claim and sessions to erase."""
        await self.releases.flush()
        due = await lease_store.due(self._db, _now(), _ERASURE_AGAIN_S)
        if due.expired:
            await lease_store.free_expired(self._db)
        if due.expired or due.claimable:
            self._scan = True
            self._pump()
        if due.erasable:
            await self._offer_erasures()

    # Streams.

    def attach(self, runner_name: str, capacity: int) -> RunnerStream:
        """A new stream; it gets claims once `opened` says so."""
        stream = RunnerStream(self._stream_prefix + ids.new("stream"), runner_name, capacity)
        self._streams[stream.id] = stream
        return stream

    def opened(self) -> None:
        """A stream is ready: there may be turns for it."""
        self._scan = True
        self._pump()

    def lose(self, stream: RunnerStream) -> None:
        """A stream broke: what it still holds is freed a little later."""
        stream.lost = True
        self._streams.pop(stream.id, None)
        self._free_soon(stream, self._free_after_s)

    def reserve(self) -> RunnerStream | None:
        """The stream with the most room, with one claim reserved; undone by `give` or `cancel`."""
        best = max(self._streams.values(), key=lambda stream: stream.room, default=None)
        if best is None or best.room <= 0:
            return None
        best.reserved += 1
        return best

    def cancel(self, stream: RunnerStream) -> None:
        """Give a reservation back."""
        stream.reserved -= 1
        self._pump()

    def doubt(self, stream: RunnerStream, key: Key, epoch: int) -> None:
        """A claim may have been committed, but whoever made it did not live to hand it over."""
        self._later(partial(self._excuse, stream, key, epoch), "ledger-doubt")

    async def _excuse(self, stream: RunnerStream, key: Key, epoch: int) -> None:
        if stream.held.get(key) == epoch:
            return
        if await lease_store.free_orphans(self._db, stream.id, [(key[2], epoch)]):
            # If it was not committed, this may have hit the claim that was made instead of it.
            stream.excuse(key, epoch)
            self._wake_everywhere()

    def give(self, stream: RunnerStream, claim: turn_pb2.Claim) -> None:
        """Hand a reserved and committed claim over."""
        stream.reserved -= 1
        stream.give(claim)
        if stream.lost:
            self._free_soon(stream, self._free_after_s)

    async def heartbeat(self, stream: RunnerStream) -> None:
        """Renew a stream's leases; tell it of lost claims and of interrupts that it missed."""
        stream.heard_at = time.monotonic()
        await self.releases.flush()
        believed = dict(stream.held)
        rows = await lease_store.renew(self._db, stream.id, self._lanes.lease_ms)
        stored: dict[Key, int] = {}
        for row in rows:
            key = row["workspace_id"], row["session_id"], row["thread_id"]
            stored[key] = row["epoch"]
            if row["interrupted_turn_id"] is not None:
                stream.interrupt(key, row["epoch"], row["interrupted_turn_id"])
        for key, epoch in believed.items():
            if stored.get(key) != epoch:
                stream.fence(key, epoch)
        await self._free_orphans(stream, stored)
        self._pump()

    async def _free_orphans(self, stream: RunnerStream, stored: dict[Key, int]) -> None:
        """A claim whose commit was answered with an error may exist: twice seen, it is freed."""
        unknown = frozenset(
            (key, epoch) for key, epoch in stored.items() if stream.held.get(key) != epoch
        )
        orphans = unknown & stream.suspects
        stream.suspects = unknown - orphans
        if orphans:
            _log.warning("freeing claims that no runner holds", count=len(orphans))
            claims = [(key[2], epoch) for key, epoch in orphans]
            await lease_store.free_orphans(self._db, stream.id, claims)
            self._scan = True

    def _free_soon(self, stream: RunnerStream, delay_s: float) -> None:
        self._later(partial(self._free, stream, delay_s), "ledger-free-stream")

    def _later(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Run work that a rescan makes good when it fails."""
        if self._closed:
            return
        task = telemetry.detached(_unless_unavailable(work), name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _free(self, stream: RunnerStream, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        await self.releases.flush()
        freed = await lease_store.free_stream(self._db, stream.id)
        if freed:
            _log.info("runner lost", runner=stream.runner_name, freed=freed)
            self._wake_everywhere()

    # Wake-ups.

    def _committed(self, change: Change) -> None:
        lane, before = change.lane, change.before
        key = lane.key
        was = before.thread
        if was.lease_stream is not None and lane.thread.lease_stream != was.lease_stream:
            self._ended(was.lease_stream, key, was.epoch, fenced=_taken_away(change))
        elif lane.thread.lease_stream is not None and _newly_interrupted(change):
            turn_id = lane.turns[0].turn_id
            self._interrupted(lane.thread.lease_stream, key, lane.thread.epoch, turn_id)
        if claiming.claimable(lane):
            self._targets.append(key[:2])
            if not self._pump():
                self._db.notify_soon(_CHANNEL, "wake")
        elif lane.thread.claimable_at is not None and lane.thread.lease_stream is None:
            wait_s = (lane.thread.claimable_at - lane.now).total_seconds()
            if wait_s < self._rescan_s:  # else the rescan is soon enough
                self._later(partial(self._offer, key[:2], wait_s), "ledger-offer")

    async def _offer(self, key: tuple[str, str], wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        self._targets.append(key)
        self._pump()

    def _ended(self, stream_id: str, key: Key, epoch: int, *, fenced: bool) -> None:
        stream = self._streams.get(stream_id)
        if stream is None:
            kind = "fenced" if fenced else "ended"
            self._db.notify_soon(_CHANNEL, " ".join((kind, stream_id, *key, str(epoch))))
            return
        if fenced:
            stream.fence(key, epoch)
        else:
            stream.drop(key, epoch)
        self._pump()

    def _interrupted(self, stream_id: str, key: Key, epoch: int, turn_id: str) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.interrupt(key, epoch, turn_id)
        else:
            words = ("interrupt", stream_id, *key, str(epoch), turn_id)
            self._db.notify_soon(_CHANNEL, " ".join(words))

    def _wake_everywhere(self) -> None:
        self._scan = True
        if not self._pump():
            self._db.notify_soon(_CHANNEL, "wake")

    def _heard(self, payload: str | None) -> None:
        match (payload or "wake").split(" "):
            case ["fenced" | "ended" as kind, stream_id, *key, epoch] if len(key) == 3:
                stream = self._streams.get(stream_id)
                if stream is not None:
                    self._ended(
                        stream_id, (key[0], key[1], key[2]), int(epoch), fenced=kind == "fenced"
                    )
            case ["interrupt", stream_id, *key, epoch, turn_id] if len(key) == 3:
                stream = self._streams.get(stream_id)
                if stream is not None:
                    stream.interrupt((key[0], key[1], key[2]), int(epoch), turn_id)
            case _:
                self._scan = True
                self._pump()

    # Claims.

    def _pump(self) -> bool:
        """Start claimers while there is work and room; whether this process can take it."""
        if self._closed:
            return False
        room = sum(max(0, stream.room) for stream in self._streams.values())
        if room == 0:
            self._targets.clear()  # a rescan finds them when there is room again
            self._scan = self._scan or bool(self._streams)
            return False
        wanted = len(self._targets) + (1 if self._scan else 0)
        while len(self._claimers) < min(_CLAIMERS_MAX, wanted, room):
            task = telemetry.detached(self._claim_all(), "ledger-claim")
            self._claimers.add(task)
            task.add_done_callback(self._claimers.discard)
        return True

    async def _claim_all(self) -> None:
        """Claim until there is nothing to claim, or no room."""
        try:
            await self._claim_while_there_is()
        finally:
            # Here, and not when the task is found done: a wake-up in between would find nobody.
            task = asyncio.current_task()
            if task is not None:
                self._claimers.discard(task)

    async def _claim_while_there_is(self) -> None:
        while self._targets or self._scan:
            stream = self.reserve()
            if stream is None:
                return
            claim: turn_pb2.Claim | None = None
            try:
                claim = await self._claim_one(stream)
            except Unavailable:
                return  # a rescan looks again
            except Exception:
                # One broken session must not stop the others: it was put off.
                _log.exception("a claim failed")
            finally:
                if claim is None:
                    stream.reserved -= 1
            if claim is not None:
                self.give(stream, claim)

    async def _claim_one(self, stream: RunnerStream) -> turn_pb2.Claim | None:
        if self._targets:
            change = await self._lanes.claim(self._targets.popleft(), stream.id)
            return None if change is None else change.claim
        self._scan = False
        if not await lease_store.claimable(self._db, _now()):
            return None
        change = await self._lanes.claim(None, stream.id)
        if change is None:
            return None
        self._scan = True  # there may be more
        self._pump()
        return change.claim

    def erase_soon(self) -> None:
        """A session was deleted: hand it to a runner."""
        self._later(self._offer_erasures, "ledger-offer-erasures")

    async def _offer_erasures(self) -> None:
        if not any(not stream.silent for stream in self._streams.values()):
            return
        threads = await session_store.offer_erasures(self._db, _ERASURE_AGAIN_S, _ERASURES_AT_ONCE)
        for thread in threads:
            # In turn: a runner that is stuck delays a deletion, and does not stop it.
            alive = [stream for stream in self._streams.values() if not stream.silent]
            if not alive:
                return
            stream = min(alive, key=lambda stream: stream.erasures)
            stream.erasures += 1
            erasure = turn_pb2.Erasure(thread=thread)
            stream.outgoing.put_nowait(turn_pb2.AttachResponse(erasure=erasure))


def _now() -> datetime:
    return datetime.now(UTC)


async def _unless_unavailable(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except Unavailable:
        _log.warning("the ledger's database is not reachable; trying again")


def _taken_away(change: Change) -> bool:
    """The claim ended against its owner's will."""
    return change.lane.thread.deleted or change.lane.thread.ended != Ended.COMMITTED


def _newly_interrupted(change: Change) -> bool:
    front = change.lane.front
    if front is None or not front.interrupted:
        return False
    before = change.before.turns.get(front.turn_id)
    return before is not None and not before.interrupted
