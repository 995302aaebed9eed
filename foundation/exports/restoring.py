"""One import in one transaction: what is stored already is compared, everything else is added."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from foundation.exports.lines import Line, at_line
from foundation.exports.tables import Key, TablePart
from foundation.storage import Connection, Database

# Two imports of one session take their turns.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 4))"

Stored = Callable[[], AsyncIterator[bytes]]
"""The lines of what is stored."""

Add = Callable[[Connection], Awaitable[int]]
"""Adds everything; how many lines."""


async def restored(
    db: Database,
    failpoint: str,
    key: Key,
    parts: Mapping[str, TablePart],
    lines: AsyncIterator[Line],
    stored: Stored,
    add: Add,
) -> int:
    """How many lines are stored now, by this import or by one before it. Raises CONFLICT where the
    session has other rows than these lines, and what `add` raises."""
    async with _locked(db, failpoint, key) as connection:
        for part in parts.values():
            if await connection.fetchval(part.exists, *key[: part.key_columns]):
                break
        else:
            return await add(connection)
    return await _same(key, lines, stored())


@asynccontextmanager
async def _locked(db: Database, failpoint: str, key: Key) -> AsyncGenerator[Connection]:
    async with db.commit(failpoint) as connection:
        await connection.execute(_LOCK, "/".join(key))
        yield connection


async def _same(key: Key, lines: AsyncIterator[Line], stored: AsyncIterator[bytes]) -> int:
    count = 0
    async for line in lines:
        count += 1
        if await anext(stored, None) != line.body:
            raise at_line(_other(key), line.number)
    if await anext(stored, None) is not None:
        raise _other(key)
    return count


def _other(key: Key) -> Failure:
    text = f"session {key[1]} is here already, with other content than these lines"
    return Failure(reasons.ERROR_REASON_CONFLICT, text)
