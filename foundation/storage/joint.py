"""One transaction for a whole call: every commit and every read inside it joins it.

A call whose answer must be stored together with its effect runs so. Work that may happen only once
the effect is durable (waking subscribers, telling runners) is handed to `Database.after_commit`.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from foundation import failpoints
from foundation.storage.connect import Connection

Callback = Callable[[], None]

_current: ContextVar["Joint | None"] = ContextVar("counterfoil_joint", default=None)


@dataclass(frozen=True, slots=True)
class _Later:
    on_commit: Callback
    on_doubt: Callback | None


class Joint:
    """A transaction under way. Tasks of the call take turns on its connection."""

    def __init__(self, owner: object, connection: Connection) -> None:
        self._owner = owner
        self._connection = connection
        self._turn = asyncio.Lock()
        self._holder: asyncio.Task[object] | None = None
        self._points: list[str] = []
        self._later: list[_Later] = []
        self._open = True

    @asynccontextmanager
    async def using(self) -> AsyncGenerator[Connection]:
        """The connection, for as long as the block; a block inside one shares its turn."""
        me = asyncio.current_task()
        if self._holder is me:
            yield self._connection
            return
        async with self._turn:
            self._holder = me
            try:
                yield self._connection
            finally:
                self._holder = None

    @asynccontextmanager
    async def step(self, failpoint: str) -> AsyncGenerator[Connection]:
        """What would be a commit of its own. An exception undoes the step, not the others."""
        async with self.using() as connection:
            await connection.execute("SAVEPOINT step")
            try:
                yield connection
                await failpoints.hit(f"{failpoint}.before")
            except BaseException:
                if not connection.is_closed():
                    await connection.execute("ROLLBACK TO SAVEPOINT step; RELEASE SAVEPOINT step")
                raise
            await connection.execute("RELEASE SAVEPOINT step")
            self._points.append(failpoint)

    def later(self, on_commit: Callback, on_doubt: Callback | None) -> None:
        """Call `on_commit` when it is durable, `on_doubt` when nobody knows."""
        self._later.append(_Later(on_commit, on_doubt))

    async def committed(self) -> None:
        """The transaction is durable."""
        for failpoint in self._points:
            await failpoints.hit(f"{failpoint}.after")
        for later in self._later:
            later.on_commit()

    def doubted(self) -> None:
        """The transaction may be durable."""
        for later in self._later:
            if later.on_doubt is not None:
                later.on_doubt()

    def enter(self) -> Callback:
        """Make it the current one of this task; the result undoes that, and ends the joining."""
        token = _current.set(self)

        def leave() -> None:
            self._open = False
            _current.reset(token)

        return leave

    def belongs_to(self, owner: object) -> bool:
        """Whether work on `owner` joins this transaction."""
        return self._open and self._owner is owner


def current(owner: object) -> Joint | None:
    """The transaction that this task's work on `owner` joins; None for none."""
    joint = _current.get()
    return joint if joint is not None and joint.belongs_to(owner) else None
