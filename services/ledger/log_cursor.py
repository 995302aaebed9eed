"""Cursors of the history: sealed for one session and one order, so that no other opens.

A cursor names a place in the marked part (`marked`) and one in the queued tail (`queued`).
Ascending, it is behind both; descending, before both. Inside the queued tail the next ascending
page first returns what was marked since, so an event can repeat there, and none is skipped.
"""

from dataclasses import dataclass

from foundation import cursors
from foundation.storage import SealRing

POSITION_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """Positions: of the last marked event's mark, and of the last queued event's receipt."""

    marked: int
    queued: int


ASCENDING = Cursor(0, 0)
DESCENDING = Cursor(POSITION_MAX, POSITION_MAX)


def begin(descending: bool) -> Cursor:
    """The cursor of a first page."""
    return DESCENDING if descending else ASCENDING


def after(cursor: Cursor, descending: bool, position: int, is_queued: bool) -> Cursor:
    """The cursor directly behind an event that `cursor`'s page returned at `position`."""
    if is_queued:
        return Cursor(cursor.marked, position)
    # Descending, the queued tail came first and is over; ascending, it is still to come.
    return Cursor(position, 0 if descending else cursor.queued)


def write(
    ring: SealRing, workspace_id: str, session_id: str, descending: bool, cursor: Cursor
) -> str:
    """The cursor as opaque text."""
    place = cursor.marked, cursor.queued
    return cursors.write(ring, place, *_identity(workspace_id, session_id, descending))


def read(ring: SealRing, workspace_id: str, session_id: str, descending: bool, text: str) -> Cursor:
    """The cursor of an earlier page; INVALID_FIELD for one of another list, or changed."""
    must = "the next_page of this list, with the same session and order"
    identity = _identity(workspace_id, session_id, descending)
    return Cursor(*cursors.read(ring, tuple[int, int], text, must, *identity))


def _identity(workspace_id: str, session_id: str, descending: bool) -> tuple[str, str, str, str]:
    return "ledger.cursor", workspace_id, session_id, "desc" if descending else "asc"
