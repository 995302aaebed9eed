"""What the log asks about the session that it belongs to."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from foundation.storage import Record
from services.ledger.log_row import LogHead


class Reader(Protocol):
    """Reads one statement: a database, or a connection inside a snapshot."""

    async def fetch(self, sql: str, /, *args: object) -> list[Record]:
        """All rows."""
        ...

    async def fetchrow(self, sql: str, /, *args: object) -> Record | None:
        """The first row, or None."""
        ...

    async def fetchval(self, sql: str, /, *args: object) -> Any:
        """The first column of the first row, or None."""
        ...


@dataclass(frozen=True, slots=True)
class SessionHead:
    """A session's row as the log sees it."""

    head: LogHead
    deleted: bool = False
    terminated: bool = False


SessionProbe = Callable[[Reader, str, str], Awaitable[SessionHead | None]]
"""Reads the row of (workspace id, session id); None when the workspace has no such session."""
