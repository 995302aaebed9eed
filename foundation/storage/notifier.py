"""LISTEN and NOTIFY on a connection of their own. Notifications only say "look again"."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from foundation import telemetry
from foundation.storage.connect import DRIVER_ERRORS, Connection, raise_translated
from foundation.storage.errors import ConfigurationError, Unavailable

_log = logging.getLogger(__name__)

Callback = Callable[[str | None], None]

_PAYLOAD_BYTES_MAX = 7_999
_PENDING_MAX = 10_000
_RETRY_S_MAX = 2.0
# A connection can die without a word (a network partition); this bounds how long that goes unseen.
_PROBE_EVERY_S = 15.0
_PROBE_S = 5.0
# Stands for "look at everything again"; an empty payload is what PostgreSQL sends for none.
_EVERYTHING = ""
# How a process that begins to listen makes itself known to those that do.
_PRESENCE = "counterfoil_presence"
_OTHERS = """
SELECT EXISTS (
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = current_setting('application_name')
        AND pid <> pg_backend_pid()
)
"""


class Notifier:
    """Restores its connection and its channels by itself while anybody listens.

    While no other process of this service listens to the database, nothing is sent: a process that
    begins to listen says so to the others, and asks who is there.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        # One statement at a time on the one connection.
        self._lock = asyncio.Lock()
        self._callbacks: dict[str, list[Callback]] = {}
        self._pending: dict[tuple[str, str], None] = {}
        self._sender: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._others = True
        """Whether another process may listen; until it was asked, one may."""
        self._meetings = 0

    async def listen(self, channel: str, callback: Callback) -> None:
        """See `Database.listen`."""
        async with self._lock:
            connection = await self._connected()
            if channel not in self._callbacks:
                await _run(connection, connection.add_listener(channel, self._receive))
            self._callbacks.setdefault(channel, []).append(callback)
        if self._keeper is None:
            self._keeper = telemetry.detached(self._keep(), "storage-listen")

    async def unlisten(self, channel: str, callback: Callback) -> None:
        """See `Database.unlisten`."""
        async with self._lock:
            callbacks = self._callbacks.get(channel, [])
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks and self._callbacks.pop(channel, None) is not None:
                connection = self._connection
                if connection is not None and not connection.is_closed():
                    await _run(connection, connection.remove_listener(channel, self._receive))

    def notify_soon(self, channel: str, payload: str) -> None:
        """See `Database.notify_soon`."""
        if not self._others:
            return
        if len(payload) > _PAYLOAD_BYTES_MAX or len(payload.encode()) > _PAYLOAD_BYTES_MAX:
            payload = _EVERYTHING
        if len(self._pending) >= _PENDING_MAX:
            # The database was away for long; whoever listens has to look at everything anyway.
            self._pending = dict.fromkeys((name, _EVERYTHING) for name, _ in self._pending)
        self._pending[channel, payload] = None
        if self._sender is None or self._sender.done():
            self._sender = telemetry.detached(self._send(), "storage-notify")

    async def close(self) -> None:
        """Stop listening and sending; what waits to be sent is dropped."""
        tasks = [task for task in (self._sender, self._keeper) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._connection is not None:
            self._connection.terminate()

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            connection = await self._connect()
            connection.add_termination_listener(lambda _: self._lost.set())
            try:
                await _run(connection, connection.add_listener(_PRESENCE, self._met))
                for channel in self._callbacks:
                    await _run(connection, connection.add_listener(channel, self._receive))
                await self._look_around(connection)
            except BaseException:
                connection.terminate()
                raise
            restored, self._connection = self._connection is not None, connection
            if restored:
                # Whatever was sent meanwhile was missed.
                for channel in list(self._callbacks):
                    self._call(channel, None)
        return self._connection

    async def _look_around(self, connection: Connection) -> None:
        """Say that we listen, then look who else does: of two that begin together, one hears the
        other or finds it."""
        await _run(connection, _notify(connection, {(_PRESENCE, _EVERYTHING): None}))
        await self._ask_around(connection)

    async def _ask_around(self, connection: Connection) -> None:
        """Whoever makes itself known meanwhile is not in the answer."""
        met = self._meetings
        found: bool = await connection.fetchval(_OTHERS)
        self._others = found or self._meetings != met

    def _met(self, connection: Any, pid: int, _channel: str, _payload: object) -> None:
        if pid != connection.get_server_pid():
            self._meetings += 1
            self._others = True

    async def _keep(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_PROBE_EVERY_S):
                    await self._lost.wait()
            except TimeoutError:
                await self._probe()
                continue
            # Before reconnecting: a loss during that must not go unseen.
            self._lost.clear()
            await self._reconnect()

    async def _probe(self) -> None:
        async with self._lock:
            connection = self._connection
            if connection is None or connection.is_closed():
                self._lost.set()
                return
            try:
                async with asyncio.timeout(_PROBE_S):
                    await self._ask_around(connection)
            except DRIVER_ERRORS:
                connection.terminate()
                self._lost.set()

    async def _reconnect(self) -> None:
        delay_s = 0.02
        while True:
            try:
                async with self._lock:
                    await self._connected()
                return
            except Unavailable:
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, _RETRY_S_MAX)
            except (ConfigurationError, *DRIVER_ERRORS):
                # A server that came back with other settings, for example: it may be put right.
                _log.exception("cannot listen for notifications")
                await asyncio.sleep(_RETRY_S_MAX)

    def _receive(self, _connection: Any, _pid: int, channel: str, payload: object) -> None:
        self._call(channel, payload if isinstance(payload, str) and payload else None)

    def _call(self, channel: str, payload: str | None) -> None:
        for callback in list(self._callbacks.get(channel, ())):
            try:
                callback(payload)
            except Exception:
                _log.exception("a notification callback failed", extra={"channel": channel})

    async def _send(self) -> None:
        delay_s = 0.02
        while self._pending:
            batch, self._pending = self._pending, {}
            try:
                async with self._lock:
                    connection = await self._connected()
                    await _run(connection, _notify(connection, batch))
                delay_s = 0.02
            except (Unavailable, ConfigurationError, *DRIVER_ERRORS) as error:
                if not isinstance(error, Unavailable):
                    _log.exception("cannot send notifications")
                self._pending = batch | self._pending
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, _RETRY_S_MAX)


async def _notify(connection: Connection, batch: dict[tuple[str, str], None]) -> None:
    await connection.execute(
        "SELECT count(pg_notify(channel, payload))"
        " FROM unnest($1::text[], $2::text[]) AS batch (channel, payload)",
        [channel for channel, _ in batch],
        [payload for _, payload in batch],
    )


async def _run(connection: Connection, statement: Awaitable[None]) -> None:
    try:
        await statement
    except DRIVER_ERRORS as error:
        raise_translated(error, connection)
