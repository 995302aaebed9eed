"""The list of a workspace's sessions as pages, forward and back."""

from dataclasses import dataclass
from datetime import UTC, datetime

from counterfoil.ledger.v1 import session_pb2

from foundation import cursors
from foundation.errors import invalid
from foundation.storage import Database, Record, SealRing
from services.ledger import resource, session_page_store, session_store
from services.ledger.session_page_store import Bounds, Place

_LIMIT_DEFAULT = 20
_PAGE_BYTES_MAX = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place between two sessions of the list; `back` for the page before it."""

    place: Place
    back: bool


class SessionPages:
    """Lists of one database."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring

    async def list_sessions(
        self, workspace_id: str, request: session_pb2.ListSessionsRequest
    ) -> session_pb2.ListSessionsResponse:
        """A page; raises INVALID_FIELD. Behind its first session it ends early rather than hold
        more than some bytes of definitions."""
        bounds = _bounds(request)
        descending = request.order != session_pb2.LIST_ORDER_ASC
        cursor = self._cursor(workspace_id, request, descending, bounds)
        if request.HasField("deployment_id") or request.HasField("memory_store_id"):
            return session_pb2.ListSessionsResponse()
        back = cursor is not None and cursor.back
        limit = request.limit if request.HasField("limit") else _LIMIT_DEFAULT
        rows = await session_page_store.page(
            self._db,
            workspace_id,
            bounds,
            None if cursor is None else cursor.place,
            descending=descending != back,
            limit=limit + 1,
            page_bytes=_PAGE_BYTES_MAX,
        )
        more = bool(rows) and rows[0]["found"] > min(len(rows), limit)
        rows = rows[:limit]
        if back:
            rows.reverse()
        return self._response(workspace_id, rows, cursor, more, descending)

    def _response(
        self,
        workspace_id: str,
        rows: list[Record],
        cursor: Cursor | None,
        more: bool,
        descending: bool,
    ) -> session_pb2.ListSessionsResponse:
        now, ring = datetime.now(UTC), self._ring
        response = session_pb2.ListSessionsResponse(
            data=[
                resource.session(row, session_store.pinned(ring, workspace_id, row), now)
                for row in rows
            ]
        )
        if not rows:
            return response
        back = cursor is not None and cursor.back
        if back or more:
            after = Cursor(Place.of(rows[-1]), back=False)
            response.next_page = _write(ring, workspace_id, descending, after)
        if more if back else cursor is not None:
            before = Cursor(Place.of(rows[0]), back=True)
            response.prev_page = _write(ring, workspace_id, descending, before)
        return response

    def _cursor(
        self,
        workspace_id: str,
        request: session_pb2.ListSessionsRequest,
        descending: bool,
        bounds: Bounds,
    ) -> Cursor | None:
        if not request.HasField("page"):
            return None
        cursor = _read(self._ring, workspace_id, descending, request.page)
        if not bounds.admit(cursor.place.created_at):
            raise invalid("page", "the created_at filter excludes the place of this cursor")
        return cursor


def _bounds(request: session_pb2.ListSessionsRequest) -> Bounds:
    if request.HasField("agent_version") and not request.HasField("agent_id"):
        raise invalid("agent_version", "needs agent_id beside it")
    return Bounds(
        agent_id=request.agent_id if request.HasField("agent_id") else None,
        agent_version=request.agent_version if request.HasField("agent_version") else None,
        include_archived=request.include_archived,
        statuses=sorted(set(request.statuses)) or None,
        after=_time(request, "created_at_gt"),
        since=_time(request, "created_at_gte"),
        before=_time(request, "created_at_lt"),
        until=_time(request, "created_at_lte"),
    )


def _time(request: session_pb2.ListSessionsRequest, name: str) -> datetime | None:
    if not request.HasField(name):  # pyright: ignore[reportArgumentType] # one of four names
        return None
    found: datetime = getattr(request, name).ToDatetime(UTC)
    return found


def _write(ring: SealRing, workspace_id: str, descending: bool, cursor: Cursor) -> str:
    place = cursor.place.created_at, cursor.place.session_id, cursor.back
    return cursors.write(ring, place, *_identity(workspace_id, descending))


def _read(ring: SealRing, workspace_id: str, descending: bool, text: str) -> Cursor:
    must = "the next_page or prev_page of this list, with the same order"
    identity = _identity(workspace_id, descending)
    created_at, session_id, back = cursors.read(
        ring, tuple[datetime, str, bool], text, must, *identity
    )
    return Cursor(Place(created_at, session_id), back)


def _identity(workspace_id: str, descending: bool) -> tuple[str, str, str]:
    return "ledger.session_cursor", workspace_id, "desc" if descending else "asc"
