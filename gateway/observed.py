"""Requests as operators see them: counted by route and status, with a line in the log."""

import logging
import re
import time
from collections.abc import Awaitable, Callable

import structlog

from foundation import measures
from foundation.metrics import Cell
from gateway.exchange import Exchange

_TOO_MANY = 429
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

_SESSION = re.compile(r"sesn_[0-9a-z]{26}")

_log = structlog.get_logger("counterfoil.gateway.access")


class Seen:
    """Watches requests of one gateway."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str, int], Cell] = {}
        self._rate_limited = measures.RATE_LIMITED.cell()

    async def watch(self, exchange: Exchange, serve: Callable[[Exchange], Awaitable[None]]) -> None:
        """Serves a request, and counts it when it is over: refused ones at info, others at debug.

        The line names the route and not the path, which may hold anything.
        """
        began = time.perf_counter()
        try:
            await serve(exchange)
        finally:
            status = exchange.status
            self._cell(exchange.method, exchange.route, status).value += 1
            if status == _TOO_MANY:
                self._rate_limited.value += 1
            level = logging.DEBUG if 0 < status < 400 else logging.INFO
            if _log.is_enabled_for(level):
                _log.log(level, "request", **_line(exchange, time.perf_counter() - began))

    def _cell(self, method: str, route: str, status: int) -> Cell:
        key = method, route, status
        cell = self._cells.get(key)
        if cell is None:
            known = method if method in _METHODS else "other"
            cell = measures.REQUESTS.cell(known, route, str(status))
            if known == method:
                self._cells[key] = cell
        return cell


def _line(exchange: Exchange, seconds: float) -> dict[str, object]:
    line: dict[str, object] = {
        "request_id": exchange.request_id,
        "method": exchange.method if exchange.method in _METHODS else "other",
        "route": exchange.route,
        "status": exchange.status,
        "seconds": round(seconds, 6),
    }
    if _SESSION.fullmatch(exchange.subject):
        line["session_id"] = exchange.subject
    return line
