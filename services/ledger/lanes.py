"""Changes of sessions: load, decide, store, and tell afterwards.

There are two ways to the same end. `apply` decides on a copy of the lane that this process kept
from its last write, and stores the result if the session has not moved since: one statement.
Changes of one session that come while one is being stored are decided one after the other and
stored together. `change` locks the session's row first: it is for what needs a transaction, and
what `apply` falls back to.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from functools import partial

from foundation.storage import CommitUnknown, Connection, Database, Record, SealRing, Unavailable
from services.ledger import claims, fork_store, lane_store, log_writer, session_store
from services.ledger.change import Before, Change, write_of
from services.ledger.desk import Decide, Desk, Job, Reads, ReadsAhead
from services.ledger.lane import Lane
from services.ledger.runtimes import Runtimes
from services.ledger.stream import Hub

LEASE_MS = 10_000
"""How long a lease lives without a heartbeat."""

_LANES_MAX = 2048
_BATCH_MAX = 256
_BATCH_ROWS_MAX = 2000
_BATCH_BYTES_MAX = 8 * 2**20
_PUT_OFF = timedelta(seconds=30)

Key = tuple[str, str]
After = Callable[[Change], None]


class Lanes:
    """Changes of the sessions of one database."""

    def __init__(self, db: Database, ring: SealRing, hub: Hub, *, lease_ms: int = LEASE_MS) -> None:
        self.db = db
        self.ring = ring
        self.lease_ms = lease_ms
        self._hub = hub
        self._after: list[After] = []
        self._lanes: OrderedDict[Key, Lane] = OrderedDict()
        self._desks: dict[Key, Desk] = {}
        self._runtimes = Runtimes(ring)

    def forget(self, workspace_id: str, session_id: str) -> None:
        """Drop what is kept in memory of a session."""
        self._lanes.pop((workspace_id, session_id), None)
        self._runtimes.forget(workspace_id, session_id)

    def subscribe(self, after: After) -> None:
        """Call `after` with every committed change; it must not block."""
        self._after.append(after)

    async def apply(
        self, failpoint: str, workspace_id: str, session_id: str, decide: Decide
    ) -> Change | None:
        """Change a session as `decide` says; None when the workspace has no such session.

        `decide` may be called more than once, each time with the session as it is then; only what
        its last call did counts. An exception of it writes nothing, and is raised here. When this
        is cancelled, the change may have been stored.
        """
        key = workspace_id, session_id
        if self.db.joined:  # a part of a transaction of the caller's
            async with self.change(failpoint, *key) as change:
                if change is not None:
                    await decide(change)
            return change
        desk = self._desks.get(key)
        if desk is None:
            return await self._apply_first(key, failpoint, decide)
        job = Job(failpoint, decide, copy_context(), asyncio.get_running_loop().create_future())
        desk.jobs.append(job)
        try:
            return await job.result
        except asyncio.CancelledError:
            desk.left()
            raise

    async def _apply_first(self, key: Key, failpoint: str, decide: Decide) -> Change | None:
        """A change that finds no other of its session, in its caller's task; those that come
        meanwhile get one of their own."""
        desk = self._desks[key] = Desk()
        try:
            lane = self._lanes.get(key)
            change = None if lane is None else await self._tried(lane, decide)
            if change is None or not await self._stored(key, [failpoint], [change]):
                return await self._under_lock(key, failpoint, decide)
            self._tell(change)
            return change
        finally:
            if desk.jobs:
                work = self._work(key, desk)
                desk.work.task = asyncio.get_running_loop().create_task(work, name="ledger-lane")
            else:
                del self._desks[key]

    async def _tried(self, lane: Lane, decide: Decide) -> Change | None:
        """The change as it is decided on a copy. None if it fails or stores nothing: then it has to
        be right about the session as it is, which is known under the lock."""
        change = self._copied(lane, pending=False)
        try:
            await self._decided(decide, change)
        except Exception:
            return None
        return None if change.empty else change

    async def _work(self, key: Key, desk: Desk) -> None:
        """Decide and store what waits for a session, until nothing waits."""
        try:
            while desk.jobs:
                try:
                    await self._round(key, desk)
                except asyncio.CancelledError:
                    if not desk.work.goes_on():
                        raise
                finally:
                    desk.busy = []
        finally:
            desk.work.task = None
            del self._desks[key]
            for job in desk.jobs:  # this process stops
                job.result.cancel()

    async def _round(self, key: Key, desk: Desk) -> None:
        """Take changes as long as they can be decided on a copy, then store them together."""
        lane = self._lanes.get(key)
        taken: list[tuple[Job, Change]] = []
        alone: Job | None = None
        size = rows = 0
        while desk.jobs and alone is None and len(taken) < _BATCH_MAX:
            if rows > _BATCH_ROWS_MAX or size > _BATCH_BYTES_MAX:
                break
            job = desk.jobs.popleft()
            if job.result.done():
                continue  # nobody waits for it any more: it was not decided yet
            desk.busy.append(job)
            if lane is None:
                alone = job
                break
            try:
                change = await self._decide(job, lane, pending=bool(taken))
            except ReadsAhead:
                desk.jobs.appendleft(job)
                desk.busy.pop()
                break
            except Exception:
                alone = job  # it has to be right about the session as it is: under the lock
                break
            if change.empty:
                alone = job
                break
            taken.append((job, change))
            rows += change.rows
            size += change.weight
            lane = change.after()
        if taken:
            await self._store_all(key, taken)
        if alone is not None:
            await self._alone(key, alone)

    async def _decide(self, job: Job, lane: Lane, *, pending: bool) -> Change:
        """Decide on a copy: at once if the decision waits for nothing, as most do."""
        change = self._copied(lane, pending=True)
        work = self._decided(job.decide, change)
        try:
            job.context.run(work.send, None)
        except StopIteration:
            return change
        except ReadsAhead:
            if pending:
                raise
        else:
            work.close()
        change = self._copied(lane, pending=pending)
        work = self._decided(job.decide, change)
        await asyncio.get_running_loop().create_task(work, context=job.context)
        return change

    def _copied(self, lane: Lane, *, pending: bool) -> Change:
        return Change(Reads(self.db, pending), lane.copy(_now()), Before.of(lane), self.ring)

    async def _decided(self, decide: Decide, change: Change) -> None:
        await decide(change)
        await self._conclude(change)

    async def _store_all(self, key: Key, taken: list[tuple[Job, Change]]) -> None:
        """Store decided changes in one statement, and answer them; if the session moved, each is
        decided again under the lock."""
        failpoints = [job.failpoint for job, _ in taken]
        try:
            stored = await self._stored(key, failpoints, [change for _, change in taken])
        except Exception as error:
            for job, _ in taken:
                job.fail(error)
            return
        except BaseException:
            for job, _ in taken:
                job.result.cancel()
            raise
        for job, change in taken:
            if stored:
                self._tell(change)
                job.settle(change)
            else:
                await self._alone(key, job)

    async def _stored(self, key: Key, failpoints: list[str], changes: list[Change]) -> bool:
        """Store decided changes of one session in one statement; False when it moved."""
        sql, values = write_of(changes, self.lease_ms).statement()
        weight = sum(change.weight for change in changes)
        self._lanes.pop(key, None)
        try:
            stored = await self.db.commit_grouped(failpoints, sql, *values, weight=weight)
        except (asyncio.CancelledError, CommitUnknown):
            self._hub.wake(*key)  # it may have been committed
            raise
        if stored:
            self._keep(key, changes[-1].after())
        return bool(stored)

    async def _alone(self, key: Key, job: Job) -> None:
        """Decide and store one change under the lock."""
        if job.result.done():
            return
        work = self._under_lock(key, job.failpoint, job.decide)
        try:
            change = await asyncio.get_running_loop().create_task(work, context=job.context)
        except Exception as error:
            job.fail(error)
        except BaseException:
            job.result.cancel()
            raise
        else:
            job.settle(change)

    async def _under_lock(self, key: Key, failpoint: str, decide: Decide) -> Change | None:
        async with self.change(failpoint, *key) as change:
            if change is not None:
                await decide(change)
        if change is not None and not change.lane.thread.deleted:
            self._keep(key, change.after())
        return change

    @asynccontextmanager
    async def change(
        self, failpoint: str, workspace_id: str, session_id: str
    ) -> AsyncGenerator[Change | None]:
        """Work on a session under its lock; None when the workspace has no such session.

        What the block changed of the lane is written when it ends; an exception writes nothing.
        """
        change: Change | None = None
        self._lanes.pop((workspace_id, session_id), None)
        try:
            async with self.db.commit(failpoint) as connection:
                lane = await lane_store.lock(connection, workspace_id, session_id, _now())
                if lane is None:
                    yield None
                else:
                    change = self._locked(connection, lane)
                    yield change
                    await self._write(change)
        except (asyncio.CancelledError, CommitUnknown):
            if change is not None and change.planned is not None:
                self._hub.wake(workspace_id, session_id)  # it may have been committed
            raise
        if change is not None:
            self._tell_soon(change)

    async def claim(self, session: Key | None, stream_id: str) -> Change | None:
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
                    change = self._locked(connection, lane)
                    change.take(stream_id)
                    await self._write(change)
        except Unavailable:
            raise
        except Exception:
            if change is not None:
                await lane_store.put_off(self.db, change.lane, now + _PUT_OFF)
            raise
        if change is not None:
            self._keep_committed(change.after())
            self._tell(change)
        return change

    async def create(self, failpoint: str, new: session_store.NewSession) -> Record:
        """Insert a session that waits; its row."""
        sql, values = session_store.insertion(self.ring, new)
        (row,) = await self.db.commit_grouped(failpoint, sql, *values)
        lane = session_store.lane_of(new)
        self._runtimes.keep(lane, new.runtime)
        self._keep_committed(lane)
        return row

    async def create_with(
        self, failpoint: str, new: session_store.NewSession, admit: Decide
    ) -> Change:
        """Insert a session and admit what comes with it."""
        sql, values = session_store.insertion(self.ring, new)
        lane = session_store.lane_of(new)
        self._runtimes.keep(lane, new.runtime)
        async with self.db.commit(failpoint) as connection:
            await connection.execute(sql, *values, 0)
            change = self._locked(connection, lane)
            await admit(change)
            await self._write(change)
        self._keep_committed(change.after())
        self._tell_soon(change)
        return change

    def _keep_committed(self, lane: Lane | None) -> None:
        if lane is not None and not self.db.joined:
            self._keep((lane.session.workspace_id, lane.session.session_id), lane)

    def _locked(self, connection: Connection, lane: Lane) -> Change:
        return Change(connection, lane.copy(lane.now), Before.of(lane), self.ring, connection)

    async def _conclude(self, change: Change) -> None:
        lane, session = change.lane, change.lane.session
        planned = log_writer.plan(
            self.ring, session.workspace_id, session.session_id, lane.log, lane.drafts, lane.now
        )
        change.conclude(planned)
        if change.takeover is not None:
            bodies = await change.bodies(claims.positions(lane))
            runtime = await self._runtimes.of(change.reader, lane)
            fork = await fork_store.source_of(change.reader, lane)
            change.claim = claims.message(
                lane, bool(change.takeover), planned.head, bodies, runtime, fork
            )

    async def _write(self, change: Change) -> None:
        await self._conclude(change)
        if change.empty:
            return
        sql, values = write_of([change], self.lease_ms).statement()
        if not await change.connection.fetch(sql, *values, 0):
            raise RuntimeError("a session changed under its lock")

    def _keep(self, key: Key, lane: Lane | None) -> None:
        """Remember a lane as it is stored, to decide the next change on, unless a later one is."""
        kept = self._lanes.pop(key, None)
        if kept is not None and lane is not None and kept.session.revision > lane.session.revision:
            lane = kept
        if lane is not None:
            self._lanes[key] = lane
            if len(self._lanes) > _LANES_MAX:
                self._lanes.popitem(last=False)

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


def _now() -> datetime:
    return datetime.now(UTC)
