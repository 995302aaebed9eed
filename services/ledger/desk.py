"""Changes that wait for a session, and what they may read while they are decided."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

from foundation.cutoff import CutOff
from foundation.storage import Database, Record
from services.ledger.change import Change

Decide = Callable[[Change], Awaitable[None]]


class ReadsAhead(Exception):
    """The decision asks for rows while decisions before it are not stored yet."""


class Reads:
    """The database for a decision on a copy: what it finds may be overtaken, which the write
    notices; what is not stored yet it could not find."""

    def __init__(self, db: Database, pending: bool) -> None:
        self._db = db
        self._pending = pending

    def _ready(self) -> Database:
        if self._pending:
            raise ReadsAhead
        return self._db

    async def fetch(self, sql: str, /, *args: object) -> list[Record]:
        """All rows."""
        return await self._ready().fetch(sql, *args)

    async def fetchrow(self, sql: str, /, *args: object) -> Record | None:
        """The first row, or None."""
        return await self._ready().fetchrow(sql, *args)

    async def fetchval(self, sql: str, /, *args: object) -> Any:
        """The first column of the first row, or None."""
        return await self._ready().fetchval(sql, *args)


@dataclass(slots=True)
class Job:
    """A change that waits for its turn on a session."""

    failpoint: str
    decide: Decide
    context: Context
    result: "asyncio.Future[Change | None]"

    def settle(self, change: Change | None) -> None:
        """Hand the stored change to whoever still waits."""
        if not self.result.done():
            self.result.set_result(change)

    def fail(self, error: BaseException) -> None:
        """Hand the failure to whoever still waits."""
        if not self.result.done():
            self.result.set_exception(error)


@dataclass(slots=True)
class Desk:
    """The changes that wait for one session, and those that are being stored."""

    jobs: deque[Job] = field(default_factory=deque[Job])
    busy: list[Job] = field(default_factory=list[Job])
    work: CutOff = field(default_factory=CutOff)

    def left(self) -> None:
        """A caller has left: what is done for nobody any more is cut off, its statement too."""
        if self.busy and all(job.result.done() for job in self.busy):
            self.work.cut()
