"""One transaction on one session: lock, load, decide, write, and tell afterwards."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from counterfoil.ledger.v1 import turn_pb2

from foundation import telemetry
from foundation.storage import CommitUnknown, Connection, Database, SealRing, Unavailable
from services.ledger import claiming, claims, lane_store, log_chain, log_writer, session_store
from services.ledger.lane import Call, Lane, Thread, Turn
from services.ledger.log_row import Planned
from services.ledger.runtimes import Runtimes
from services.ledger.stream import Hub

LEASE_MS = 10_000
"""How long a lease lives without a heartbeat."""

PARKED = turn_pb2.TURN_STATE_PARKED
QUEUED = turn_pb2.TURN_STATE_QUEUED
RUNNING = turn_pb2.TURN_STATE_RUNNING

_PUT_OFF = timedelta(seconds=30)


@dataclass(slots=True)
class Before:
    """A lane as it was loaded, to find what changed."""

    thread: Thread
    turns: dict[str, Turn]
    calls: list[Call]

    @classmethod
    def of(cls, lane: Lane) -> "Before":
        """A copy."""
        return cls(
            replace(lane.thread),
            {turn.turn_id: replace(turn) for turn in lane.turns},
            [replace(call) for call in (*lane.calls, *lane.past)],
        )


@dataclass(slots=True)
class Change:
    """A transaction under way. After the block, `planned` holds what was added to the log and
    `claim` what a stream may now run."""

    connection: Connection
    lane: Lane
    before: Before
    ring: SealRing
    takeover: bool | None = None
    claim: turn_pb2.Claim | None = None
    planned: Planned | None = None
    _opened: dict[int, bytes] = field(default_factory=dict[int, bytes])

    async def bodies(self, positions: Collection[int]) -> dict[int, bytes]:
        """Stored event bodies by log position, those of this transaction included."""
        known = self.lane.bodies | self._opened
        missing = [position for position in positions if position not in known]
        session = self.lane.session
        if missing:
            rows = await lane_store.sealed_bodies(
                self.connection, session.workspace_id, session.session_id, missing
            )
            for row in rows:
                _, body = log_chain.open_body(
                    self.ring,
                    row["sealed"],
                    session.workspace_id,
                    session.session_id,
                    row["position"],
                    row["event_id"],
                )
                self._opened[row["position"]] = known[row["position"]] = body
        return known

    async def answered_bytes(self) -> int:
        """Bytes of the answers to the open round that came before this transaction."""
        lane = self.lane
        before = [one for one in claims.answer_positions(lane) if one <= lane.log.position]
        if not before:
            return 0
        session = lane.session
        return await lane_store.body_bytes(
            self.connection, session.workspace_id, session.session_id, before
        )

    async def load_past(self, operation_ids: Sequence[str]) -> None:
        """Load the calls of older rounds that these operations belong to."""
        current = {call.operation_id for call in self.lane.calls}
        missing = [id_ for id_ in operation_ids if id_ not in current]
        self.lane.past = await lane_store.calls_of(self.connection, self.lane, missing)
        self.before.calls.extend(replace(call) for call in self.lane.past)

    def take(self, stream_id: str) -> bool:
        """Claim the front turn for a stream, if it can be claimed; whether it was."""
        if not claiming.claimable(self.lane):
            return False
        self.takeover = claiming.claim(self.lane, stream_id)
        return self.takeover is not None


After = Callable[[Change], None]


class Lanes:
    """Transactions on the sessions of one database."""

    def __init__(self, db: Database, ring: SealRing, hub: Hub, *, lease_ms: int = LEASE_MS) -> None:
        self.db = db
        self.ring = ring
        self.lease_ms = lease_ms
        self._hub = hub
        self._after: list[After] = []
        self._runtimes = Runtimes(ring)

    def forget(self, workspace_id: str, session_id: str) -> None:
        """Drop what is kept in memory of a deleted session."""
        self._runtimes.forget(workspace_id, session_id)

    def subscribe(self, after: After) -> None:
        """Call `after` with every committed change; it must not block."""
        self._after.append(after)

    @asynccontextmanager
    async def change(
        self, failpoint: str, workspace_id: str, session_id: str, *, calls: bool = True
    ) -> AsyncGenerator[Change | None]:
        """Work on a session under its lock; None when the workspace has no such session.

        What the block changed of the lane is written when it ends; an exception writes nothing.
        Without `calls` the open round's calls are not loaded.
        """
        change: Change | None = None
        try:
            async with self.db.commit(failpoint) as connection:
                lane = await lane_store.lock(connection, workspace_id, session_id, _now(), calls)
                if lane is None:
                    yield None
                else:
                    change = Change(connection, lane, Before.of(lane), self.ring)
                    yield change
                    await self._write(change)
        except (asyncio.CancelledError, CommitUnknown):
            if change is not None and change.planned is not None:
                self._hub.wake(workspace_id, session_id)  # it may have been committed
            raise
        if change is not None:
            self._tell_soon(change)

    async def claim(self, session: tuple[str, str] | None, stream_id: str) -> Change | None:
        """Claim the front turn of a session (workspace and session id), or with None the turn that
        waits longest; None when there is nothing to look at.

        A session whose claim fails is put off for a while, so that it does not block the others.
        """
        change: Change | None = None
        now = _now()
        try:
            async with self.db.commit("ledger.claim") as connection:
                if session is None:
                    lane = await lane_store.lock_claimable(connection, now)
                else:
                    lane = await lane_store.lock(connection, *session, now)
                if lane is not None:
                    change = Change(connection, lane, Before.of(lane), self.ring)
                    change.take(stream_id)
                    await self._write(change)
        except Unavailable:
            raise
        except Exception:
            if change is not None:
                await lane_store.put_off(self.db, change.lane, now + _PUT_OFF)
            raise
        if change is not None:
            self._tell(change)
        return change

    async def create(self, failpoint: str, new: "session_store.NewSession") -> Change:
        """Insert a session and admit what comes with it, as `new.admit` says."""
        async with self.db.commit(failpoint) as connection:
            lane = await session_store.insert(connection, self.ring, new)
            change = Change(connection, lane, Before.of(lane), self.ring)
            new.admit(change)
            await self._write(change)
        self._tell_soon(change)
        return change

    async def _write(self, change: Change) -> None:
        lane, before = change.lane, change.before
        session = lane.session
        planned = log_writer.plan(
            self.ring, session.workspace_id, session.session_id, lane.log, lane.drafts, lane.now
        )
        change.planned = planned
        _stamp(lane, planned)
        _follow(lane, before)
        if change.takeover is not None:
            await self._build_claim(change, planned)
        turns = [
            turn for turn in (*lane.finished, *lane.turns) if before.turns.get(turn.turn_id) != turn
        ]
        if not turns and not planned.rows and before.thread == lane.thread and not lane.lease_taken:
            return
        calls = [call for call in _all_calls(lane) if call not in before.calls]
        connection = change.connection
        await lane_store.save(connection, lane, planned.head, turns, calls, self.lease_ms)
        await log_writer.insert(connection, planned)

    async def _build_claim(self, change: Change, planned: Planned) -> None:
        lane = change.lane
        bodies = await change.bodies(claims.positions(lane))
        runtime = await self._runtimes.of(change.connection, lane)
        change.claim = claims.message(lane, bool(change.takeover), planned.head, bodies, runtime)

    def _tell_soon(self, change: Change) -> None:
        """Tell once it is committed, which is now unless the whole call is one transaction."""
        session = change.lane.session
        wake = partial(self._hub.wake, session.workspace_id, session.session_id)
        self.db.after_commit(partial(self._tell, change), doubt=wake)

    def _tell(self, change: Change) -> None:
        planned = change.planned
        if planned is not None and planned.rows:
            self._hub.wake(planned.workspace_id, planned.session_id, planned)
        for after in self._after:
            after(change)


def _stamp(lane: Lane, planned: Planned) -> None:
    """Answers and closures of this transaction learn their chain digests."""
    first = lane.log.position + 1
    for call in _all_calls(lane):
        if call.answer_position is not None and call.answer_position >= first:
            call.answer_digest = planned.rows[call.answer_position - first].digest


def _follow(lane: Lane, before: Before) -> None:
    """Turns that this call queued or resumed go on in its trace."""
    for turn in lane.turns:
        was = before.turns.get(turn.turn_id)
        resumed = was is not None and was.state == PARKED and turn.state in (QUEUED, RUNNING)
        if was is None or resumed:
            turn.traceparent = telemetry.traceparent()


def _all_calls(lane: Lane) -> list[Call]:
    return [*lane.past, *lane.settled_calls, *lane.calls]


def _now() -> datetime:
    return datetime.now(UTC)
