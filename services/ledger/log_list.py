"""The history as pages: events in the order in which they took effect, queued ones last."""

from datetime import datetime

from counterfoil.ledger.v1 import session_pb2

from foundation.errors import invalid, not_found
from foundation.storage import Database, SealRing
from services.ledger import log_cursor, log_entry, log_page_store, log_times
from services.ledger.log_probe import SessionProbe
from services.ledger.log_row import KIND_QUEUED
from services.ledger.log_types import FILTERS

_LIMIT_DEFAULT = 1000
_PAGE_BYTES_MAX = 16 * 2**20


class History:
    """Lists of one database."""

    def __init__(self, db: Database, ring: SealRing, probe: SessionProbe) -> None:
        self._db = db
        self._ring = ring
        self._probe = probe

    async def list_events(
        self,
        workspace_id: str,
        request: session_pb2.ListEventsRequest,
        *,
        page_bytes: int = _PAGE_BYTES_MAX,
    ) -> session_pb2.ListEventsResponse:
        """A page. Behind its first event it ends early rather than exceed `page_bytes`.

        Raises INVALID_FIELD for an unknown type or a foreign cursor, and NOT_FOUND.
        """
        session_id = request.session_id
        descending = request.order == session_pb2.LIST_ORDER_DESC
        types, times = _types(request), log_times.of(request)
        cursor = log_cursor.begin(descending)
        if request.HasField("page"):
            cursor = log_cursor.read(self._ring, workspace_id, session_id, descending, request.page)
        found = await self._probe(self._db, workspace_id, session_id)
        if found is None or found.deleted:
            raise not_found("session", session_id)
        limit = request.limit if request.HasField("limit") else _LIMIT_DEFAULT
        span = log_times.EVERYTHING
        if times is not None:
            span = await self._span(workspace_id, session_id, found.head.position, times)
            if request.HasField("page") and not span.admits(cursor, descending):
                raise invalid("page", "the created_at filter excludes the place of this cursor")
        rows = await log_page_store.history(
            self._db,
            workspace_id,
            session_id,
            **span.of_page(cursor, descending),
            descending=descending,
            limit=limit + 1,
            page_bytes=page_bytes,
            types=types,
        )
        response = session_pb2.ListEventsResponse()
        for row in rows[:limit]:
            is_queued = row["kind"] == KIND_QUEUED
            cursor = log_cursor.after(cursor, descending, row["position"], is_queued)
            entry = log_entry.read(self._ring, workspace_id, session_id, row)
            if entry is not None:
                response.data.append(entry.json)
        if rows and rows[0]["found"] > min(len(rows), limit):
            response.next_page = log_cursor.write(
                self._ring, workspace_id, session_id, descending, cursor
            )
        return response

    async def _span(
        self, workspace_id: str, session_id: str, head: int, times: log_times.Times
    ) -> log_times.Span:
        async def through(time: datetime, before: bool) -> int:
            return await log_page_store.through(
                self._db, workspace_id, session_id, head, time, before=before
            )

        return log_times.Span(
            after=max([0, *[await through(*one) for one in times.lower]]),
            through=min([head, *[await through(*one) for one in times.upper]]),
        )


def _types(request: session_pb2.ListEventsRequest) -> list[str]:
    for number, wanted in enumerate(request.types):
        if wanted not in FILTERS:
            raise invalid(f"types.{number}", f"{wanted!r} is not an event type")
    return sorted(set(request.types))
