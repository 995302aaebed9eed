"""Times that a history may be filtered by, as positions: in a log, time never goes back. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypedDict

from counterfoil.ledger.v1 import session_pb2

from services.ledger.log_cursor import POSITION_MAX, Cursor


class Place(TypedDict):
    """Where a page starts in the marked part and in the queued tail, and where the former ends."""

    marked: int
    queued: int
    bound: int


@dataclass(frozen=True, slots=True)
class Times:
    """Bounds as (time, whether an event of exactly this time lies behind the bound)."""

    lower: list[tuple[datetime, bool]]
    upper: list[tuple[datetime, bool]]


@dataclass(frozen=True, slots=True)
class Span:
    """Marked events behind `after` up to `through`; unless `is_bounded`, everything, queued too."""

    after: int = 0
    through: int = POSITION_MAX
    is_bounded: bool = True

    def admits(self, cursor: Cursor, descending: bool) -> bool:
        """Whether the event that a cursor stands at is inside; a queued one has no time."""
        in_tail = cursor.marked == POSITION_MAX if descending else cursor.queued > 0
        return not in_tail and self.after < cursor.marked <= self.through

    def of_page(self, cursor: Cursor, descending: bool) -> Place:
        """Where the page behind a cursor starts and ends."""
        if not self.is_bounded:
            bound = 0 if descending else POSITION_MAX
            return Place(marked=cursor.marked, queued=cursor.queued, bound=bound)
        if descending:
            marked = min(cursor.marked, self.through + 1)
            return Place(marked=marked, queued=0, bound=self.after)
        marked = max(cursor.marked, self.after)
        return Place(marked=marked, queued=POSITION_MAX, bound=self.through)


EVERYTHING = Span(is_bounded=False)


def of(request: session_pb2.ListEventsRequest) -> Times | None:
    """The bounds of a request; None for a request without."""
    lower = [*_bound(request, "created_at_gte", True), *_bound(request, "created_at_gt", False)]
    upper = [*_bound(request, "created_at_lt", True), *_bound(request, "created_at_lte", False)]
    return Times(lower, upper) if lower or upper else None


def _bound(
    request: session_pb2.ListEventsRequest, name: str, before: bool
) -> list[tuple[datetime, bool]]:
    if not request.HasField(name):  # pyright: ignore[reportArgumentType] # one of four names
        return []
    return [(getattr(request, name).ToDatetime(UTC), before)]
