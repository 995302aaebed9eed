"""Group commit: equal statements of many sessions, sent and committed together.

A commit costs PostgreSQL more than the rows of an ordinary write, and a round trip costs this
process more than its arguments. So at most one transaction of a statement is on its way; what comes
meanwhile forms the next one. Nothing waits for company: a statement that comes alone is sent alone.
Nor for a lock, but for a moment: whoever needs one that is held elsewhere goes on alone.
"""

import asyncio
from collections import deque
from dataclasses import dataclass

import asyncpg

from foundation.cutoff import CutOff
from foundation.storage.connect import DRIVER_ERRORS, Record, raise_uncommitted
from foundation.storage.errors import CommitUnknown
from foundation.storage.pool import Pool

_MEMBERS_MAX = 32
"""When more wait, they go in parts: PostgreSQL stores one while this process decides what follows
on the other."""
_WEIGHT_MAX = 1 << 20


@dataclass(slots=True, eq=False)
class _Member:
    args: tuple[object, ...]
    weight: int
    rows: "asyncio.Future[list[Record]]"


class Group:
    """The callers of one statement."""

    def __init__(self, sql: str, quick: Pool, patient: Pool) -> None:
        """Connections of `quick` give up soon on a lock, those of `patient` wait for it."""
        self._sql = sql
        self._quick = quick
        self._patient = patient
        self._alone: set[asyncio.Task[None]] = set()
        self._waiting: deque[_Member] = deque()
        self._sent: list[_Member] = []
        self._busy = False
        self._sender = CutOff()

    async def commit(self, args: tuple[object, ...], weight: int) -> list[Record]:
        """The rows that the statement returns for these arguments, once it is committed.

        Raises what the statement raises; CommitUnknown when nobody knows. When this is cancelled it
        may have happened; a transaction for which nobody waits any more is cut off.
        """
        loop = asyncio.get_running_loop()
        if not self._busy:
            self._busy = True
            try:
                return await self._run_alone(self._quick, args)
            except asyncpg.LockNotAvailableError:
                pass  # it waits for the lock below, where it holds up nobody
            finally:
                self._go_on(loop)
            return await self._run_alone(self._patient, args)
        member = _Member(args, weight, loop.create_future())
        self._waiting.append(member)
        try:
            return await member.rows
        except asyncio.CancelledError:
            self._left()
            raise

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send what came meanwhile, if there is something."""
        self._busy = bool(self._waiting)
        if self._busy:
            self._sender.task = loop.create_task(self._send_all(), name="group-commit")

    def _left(self) -> None:
        """A caller has left: a transaction for which nobody waits any more is cut off."""
        if self._sent and all(member.rows.done() for member in self._sent):
            self._sender.cut()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                self._sent = self._next()
                try:
                    if self._sent:
                        await self._send(self._sent)
                except asyncio.CancelledError:
                    if not self._sender.goes_on():
                        raise
                finally:
                    self._sent = []
        finally:
            self._sender.task = None
            self._busy = False
            for member in self._waiting:  # this process stops
                member.rows.cancel()

    def _next(self) -> list[_Member]:
        """The next transaction, in the order of sessions, so that two processes which write to the
        same ones never wait for each other."""
        taken: list[_Member] = []
        weight = 0
        while self._waiting and len(taken) < _MEMBERS_MAX and weight <= _WEIGHT_MAX:
            member = self._waiting.popleft()
            if not member.rows.done():  # else nobody waits for it any more: it is not sent
                taken.append(member)
                weight += member.weight
        taken.sort(key=lambda member: member.args[:2])
        return taken

    async def _send(self, members: list[_Member]) -> None:
        calls = [(*member.args, call) for call, member in enumerate(members)]
        try:
            rows = await self._run(calls)
        except CommitUnknown as error:
            for member in members:
                _fail(member, error)
        except Exception:
            # One of them is at fault or waits for a lock. Nothing was committed.
            for member in members:
                self._send_alone(member)
        except BaseException:
            for member in members:
                member.rows.cancel()
            raise
        else:
            answers: list[list[Record]] = [[] for _ in members]
            for row in rows:
                call: int = row["call"]
                answers[call].append(row)
            for member, answer in zip(members, answers, strict=True):
                _settle(member, answer)

    def _send_alone(self, member: _Member) -> None:
        if member.rows.done():
            return

        async def work() -> None:
            try:
                rows = await self._run_alone(self._patient, member.args)
            except Exception as error:
                _fail(member, error)
            except BaseException:
                member.rows.cancel()
                raise
            else:
                _settle(member, rows)

        task = asyncio.get_running_loop().create_task(work(), name="group-commit-alone")
        self._alone.add(task)
        task.add_done_callback(self._alone.discard)
        # Nobody waits for it any more when its caller was cancelled: it is cut off.
        member.rows.add_done_callback(lambda rows: task.cancel() if rows.cancelled() else None)

    async def _run(self, calls: list[tuple[object, ...]]) -> list[Record]:
        connection = await self._quick.acquire()
        try:
            return await connection.fetchmany(self._sql, calls)
        except DRIVER_ERRORS as error:
            raise_uncommitted(error, connection)
        finally:
            self._quick.release(connection)

    async def _run_alone(self, pool: Pool, args: tuple[object, ...]) -> list[Record]:
        connection = await pool.acquire()
        try:
            return await connection.fetch(self._sql, *args, 0)
        except DRIVER_ERRORS as error:
            raise_uncommitted(error, connection)
        finally:
            pool.release(connection)


def _settle(member: _Member, rows: list[Record]) -> None:
    if not member.rows.done():
        member.rows.set_result(rows)


def _fail(member: _Member, error: Exception) -> None:
    if not member.rows.done():
        member.rows.set_exception(error)
