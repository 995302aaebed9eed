"""What the registry's lists share: cursors, limits, ranges of time as clients see it. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from foundation import cursors
from foundation.errors import invalid
from foundation.storage import Record, SealRing
from services.registry.store import Place

_LIMIT_DEFAULT = 20
_MILLISECOND = timedelta(milliseconds=1)
_MUST = "the next_page of this list"


def limit_of(request: Any) -> int:
    """Rows of the page that a valid request asks for."""
    return request.limit if request.HasField("limit") else _LIMIT_DEFAULT


def page_of(rows: list[Record], limit: int) -> tuple[list[Record], bool]:
    """The rows of a page, and whether more follow. `rows` holds up to one more than `limit`."""
    page = rows[:limit]
    return page, bool(page) and page[0]["found"] > len(page)


def write_place(ring: SealRing, row: Record, *identity: str) -> str:
    """The cursor behind a row of a list by creation."""
    return cursors.write(ring, (row["created_at"], row["id"]), *identity)


def read_place(ring: SealRing, text: str, *identity: str) -> Place | None:
    """The place that a cursor names; None for the first page."""
    if not text:
        return None
    return cursors.read(ring, tuple[datetime, str], text, _MUST, *identity)


def write_number(ring: SealRing, number: int, *identity: str) -> str:
    """The cursor behind a row of a list by number."""
    return cursors.write(ring, (number,), *identity)


def read_number(ring: SealRing, text: str, first: int, *identity: str) -> int:
    """The number that a cursor names; `first` for the first page."""
    if not text:
        return first
    must = f"{_MUST}, of the same agent"
    return cursors.read(ring, tuple[int], text, must, *identity)[0]


def since(moment: datetime | None) -> datetime | None:
    """The first creation that shows at or after `moment`: answers are cut to milliseconds."""
    if moment is None:
        return None
    cut = _cut(moment)
    return cut if cut == moment else _later(cut)


def before(moment: datetime | None) -> datetime | None:
    """The first creation that shows after `moment`."""
    return None if moment is None else _later(_cut(moment))


def check_range(place: Place | None, since: datetime | None, before: datetime | None) -> None:
    """Raise INVALID_FIELD when a filter excludes the place of the cursor."""
    if place is None:
        return
    created_at, _ = place
    if (since is not None and created_at < since) or (before is not None and created_at >= before):
        raise invalid("page", "the created_at filter excludes the place of this cursor")


def times(request: Any, names: Sequence[str]) -> list[datetime | None]:
    """The request's timestamps with these names; None for those that are not set."""
    return [
        getattr(request, name).ToDatetime(UTC) if request.HasField(name) else None for name in names
    ]


def _cut(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _later(moment: datetime) -> datetime:
    """A millisecond later; the calendar ends with the year 9999."""
    try:
        return moment + _MILLISECOND
    except OverflowError:
        return moment
