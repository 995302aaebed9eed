"""One service's way to its PostgreSQL: read anywhere, write only inside a named commit."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Any, Self

from foundation import failpoints, telemetry
from foundation.storage import joint
from foundation.storage.connect import (
    DRIVER_ERRORS,
    Connection,
    Record,
    connect,
    raise_translated,
    raise_uncommitted,
    translate,
)
from foundation.storage.errors import CommitUnknown, Unavailable
from foundation.storage.group import Group
from foundation.storage.joint import Joint
from foundation.storage.notifier import Callback, Notifier
from foundation.storage.pool import Pool

__all__ = ["Connection", "Database", "Record"]

Doubt = Callable[[], None] | None

_GROUP_LOCK_MS = 250

_ATTRIBUTES = {
    kind: {"db.system.name": "postgresql", "db.operation.name": kind}
    for kind in ("commit", "read", "fetch")
}


class Database:
    """Pools of connections to one database for one service.

    Every connection that callers see has `default_transaction_read_only = on`: PostgreSQL itself
    refuses a write outside `commit`. Everything here raises `Unavailable` when the database cannot
    serve now, and works again by itself when it can; other errors are asyncpg's.
    """

    def __init__(self, readers: Pool, writers: Pool, groups: Pool, notifier: Notifier) -> None:
        """Use `open`."""
        self._readers = readers
        # Read-write connections for `commit_one`, and for groups. They never leave this package.
        self._writers = writers
        self._group_writers = groups
        self._notifier = notifier
        self._groups: dict[str, Group] = {}

    @classmethod
    async def open(cls, dsn: str, *, service: str, pool_size: int = 8) -> Self:
        """Connect. Raises Unavailable, or ConfigurationError when the server is set so that it
        could lose an answered commit. Opens up to `3 * pool_size + 1` connections, when needed."""
        application = f"counterfoil-{service}"
        readers = Pool(partial(connect, dsn, application=application), pool_size)
        writers = Pool(partial(connect, dsn, application=application, writer=True), pool_size)
        waits = partial(connect, dsn, application=application, writer=True, lock_ms=_GROUP_LOCK_MS)
        groups = Pool(waits, pool_size)
        notifier = Notifier(partial(connect, dsn, application=f"{application}-notify"))
        readers.release(await readers.acquire())
        return cls(readers, writers, groups, notifier)

    @property
    def busy(self) -> int:
        """Connections in use."""
        return self._readers.busy + self._writers.busy + self._group_writers.busy

    async def close(self) -> None:
        """Close every connection; transactions still open after 5 s are cut off."""
        await self._notifier.close()
        await self._readers.close()
        await self._writers.close()
        await self._group_writers.close()

    @asynccontextmanager
    async def commit(self, failpoint: str) -> AsyncGenerator[Connection]:
        """A read-write transaction (READ COMMITTED), committed when the block ends.

        Hits the failpoint `<failpoint>.before` right before COMMIT and `<failpoint>.after` right
        after it. An exception, a cancellation too, rolls back and hits no `.after`. Once COMMIT is
        on its way its answer is awaited, also when this task is cancelled meanwhile. Raises
        CommitUnknown when the connection was lost in that moment. Do not start transactions of your
        own inside; savepoints are fine. Inside `joint` it is a part of that transaction.
        """
        joined = joint.current(self)
        if joined is not None:
            async with joined.step(failpoint) as connection:
                yield connection
            return
        with _span("commit", failpoint):
            connection = await self._readers.acquire()
            try:
                await _begin(connection, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
                try:
                    yield connection
                    await failpoints.hit(f"{failpoint}.before")
                except BaseException as error:
                    await _rollback(connection)
                    if isinstance(error, DRIVER_ERRORS):
                        raise_translated(error, connection)
                    raise
                await _finish(asyncio.ensure_future(_commit(connection)))
            finally:
                self._readers.release(connection)
            await failpoints.hit(f"{failpoint}.after")

    async def commit_one(
        self, failpoint: str | Sequence[str], sql: str, *args: object
    ) -> list[Record]:
        """Run one statement as a transaction of its own and return its rows.

        One round trip instead of the three of `commit`, for an effect that one statement (a CTE
        that modifies data, for example) expresses. `<failpoint>.before` is hit before the statement
        is sent, `<failpoint>.after` when it is committed; those of several effects when one
        statement holds them. A cancelled statement may have happened. Inside `joint` it is a part
        of that transaction.
        """
        names = (failpoint,) if isinstance(failpoint, str) else failpoint
        joined = joint.current(self)
        if joined is not None:
            async with joined.step(names[0]) as connection:
                return await connection.fetch(sql, *args)
        with _span("commit", names[0]):
            if failpoints.active():
                await failpoints.hit_all(names, "before")
            connection = await self._writers.acquire()
            try:
                rows = await connection.fetch(sql, *args)
            except DRIVER_ERRORS as error:
                raise_uncommitted(error, connection)
            finally:
                self._writers.release(connection)
            if failpoints.active():
                await failpoints.hit_all(names, "after")
            return rows

    async def commit_grouped(
        self, failpoint: str | Sequence[str], sql: str, *args: object, weight: int = 0
    ) -> list[Record]:
        """`commit_one` for a statement that is sent often: while one is on its way, those that come
        wait, and are then sent and committed together, each with its own answer.

        Its first two arguments are a workspace and a session; a further, last parameter of `sql` is
        an integer that every row returns as `call`. `weight` are the bytes that the arguments hold,
        roughly. What fails together, or waits for a lock, is sent again alone: an error is its own,
        and a session that is locked elsewhere holds up no other.
        """
        names = (failpoint,) if isinstance(failpoint, str) else failpoint
        joined = joint.current(self)
        if joined is not None:
            async with joined.step(names[0]) as connection:
                return await connection.fetch(sql, *args, 0)
        group = self._groups.get(sql)
        if group is None:
            group = self._groups[sql] = Group(sql, self._group_writers, self._writers)
        with _span("commit", names[0]):
            if failpoints.active():
                await failpoints.hit_all(names, "before")
            rows = await group.commit(args, weight)
            if failpoints.active():
                await failpoints.hit_all(names, "after")
            return rows

    @asynccontextmanager
    async def joint(self, failpoint: str) -> AsyncGenerator[Connection]:
        """One transaction for everything that this task commits and reads here in the block.

        Its parts see what earlier parts wrote; all of them are durable when the block ends, or
        none. Raises what `commit` raises.
        """
        found: Joint | None = None
        try:
            async with self.commit(failpoint) as connection:
                found = Joint(self, connection)
                leave = found.enter()
                try:
                    yield connection
                finally:
                    leave()
        except (asyncio.CancelledError, CommitUnknown):
            if found is not None:
                found.doubted()
            raise
        await found.committed()

    @property
    def joined(self) -> bool:
        """Whether this task's work is a part of a `joint` transaction."""
        return joint.current(self) is not None

    def after_commit(self, on_commit: Callable[[], None], *, doubt: Doubt = None) -> None:
        """Call `on_commit` once what this task wrote is durable: now, or when its `joint` is.

        `doubt` is called instead when a joint's commit was lost on its way. Both must not block.
        """
        joined = joint.current(self)
        if joined is None:
            on_commit()
        else:
            joined.later(on_commit, doubt)

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[Connection]:
        """A connection whose statements all see one snapshot (REPEATABLE READ, READ ONLY)."""
        joined = joint.current(self)
        if joined is not None:
            async with joined.using() as connection:
                yield connection
            return
        with _span("read", None):
            connection = await self._readers.acquire()
            try:
                await _begin(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                try:
                    yield connection
                except DRIVER_ERRORS as error:
                    raise_translated(error, connection)
                finally:
                    await _rollback(connection)
            finally:
                self._readers.release(connection)

    async def fetch(self, sql: str, *args: object) -> list[Record]:
        """All rows of one read-only statement."""
        joined = joint.current(self)
        if joined is not None:
            async with joined.using() as connection:
                return await connection.fetch(sql, *args)
        with _span("fetch", None):
            connection = await self._readers.acquire()
            try:
                return await connection.fetch(sql, *args)
            except DRIVER_ERRORS as error:
                raise_translated(error, connection)
            finally:
                self._readers.release(connection)

    async def fetchrow(self, sql: str, *args: object) -> Record | None:
        """The first row of one read-only statement, or None."""
        joined = joint.current(self)
        if joined is not None:
            async with joined.using() as connection:
                return await connection.fetchrow(sql, *args)
        with _span("fetch", None):
            connection = await self._readers.acquire()
            try:
                return await connection.fetchrow(sql, *args)
            except DRIVER_ERRORS as error:
                raise_translated(error, connection)
            finally:
                self._readers.release(connection)

    async def fetchval(self, sql: str, *args: object) -> Any:
        """The first column of the first row of one read-only statement, or None."""
        row = await self.fetchrow(sql, *args)
        return None if row is None else row[0]

    async def listen(self, channel: str, callback: Callback) -> None:
        """Call `callback(payload)` in this event loop for every notification on `channel`.

        Active when this returns. The connection is restored by itself when it breaks; then, and
        when a notification could not be told, the payload is None: "look at everything again".
        The callback must not block. Raises Unavailable when it cannot be set up now.
        """
        await self._notifier.listen(channel, callback)

    async def unlisten(self, channel: str, callback: Callback) -> None:
        """Undo `listen`."""
        await self._notifier.unlisten(channel, callback)

    def notify_soon(self, channel: str, payload: str) -> None:
        """Tell the other processes of this service that listen, by a NOTIFY outside any writing
        transaction, soon; never raises, never waits. While there are none, nothing is sent.

        Equal payloads that wait together are sent once, and at most one batch is on its way.
        Receivers get None instead of a payload above 7,999 bytes.
        """
        self._notifier.notify_soon(channel, payload)


def _span(kind: str, failpoint: str | None) -> AbstractContextManager[object]:
    """A span below a span that is recorded; without one, nothing."""
    if not telemetry.recording():
        return telemetry.NOTHING
    name = f"sql {kind}" if failpoint is None else f"sql {kind} {failpoint}"
    return telemetry.span_below(name, telemetry.SpanKind.CLIENT, _ATTRIBUTES[kind])


async def _begin(connection: Connection, sql: str) -> None:
    try:
        await connection.execute(sql)
    except DRIVER_ERRORS as error:
        raise_translated(error, connection)


async def _commit(connection: Connection) -> None:
    try:
        status = await connection.execute("COMMIT")
    except DRIVER_ERRORS as error:
        if isinstance(translate(error, connection), Unavailable) and connection.is_closed():
            raise CommitUnknown(f"the connection was lost during COMMIT: {error}") from error
        raise_translated(error, connection)
    if status != "COMMIT":
        # PostgreSQL answers COMMIT of a failed transaction with ROLLBACK, and no error.
        raise RuntimeError("nothing was committed: a statement failed and its error was swallowed")


async def _finish(commit: asyncio.Future[None]) -> None:
    """Await COMMIT's answer, through any number of cancellations."""
    cancelled: asyncio.CancelledError | None = None
    while not commit.done():
        try:
            await asyncio.shield(commit)
        except asyncio.CancelledError as error:
            cancelled = error
        except (Unavailable, RuntimeError, *DRIVER_ERRORS):
            break
    commit.result()
    if cancelled is not None:
        raise cancelled


async def _rollback(connection: Connection) -> None:
    """End the transaction; a connection on which that does not work is cut off, which ends it."""
    if connection.is_closed():
        return
    try:
        await connection.execute("ROLLBACK")
    except DRIVER_ERRORS:
        connection.terminate()
    except BaseException:
        connection.terminate()
        raise
