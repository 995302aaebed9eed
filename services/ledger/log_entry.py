"""Stored entries as clients see them."""

from typing import NamedTuple

from foundation.errors import Failure, Reason
from foundation.storage import Record, SealBroken, SealRing
from services.ledger import log_chain
from services.ledger.log_row import splice
from services.ledger.log_types import SESSION_DELETED


class Entry(NamedTuple):
    """One entry: a mark looks like its event, with its time. `body` is the JSON without time."""

    position: int
    kind: int
    event_id: str
    type: str
    body: bytes
    json: bytes
    refers_position: int | None


def read(ring: SealRing, workspace_id: str, session_id: str, row: Record) -> Entry | None:
    """The entry in a row of `log_page_store`; None when its content was erased.

    Raises CORRUPT when the body does not open.
    """
    position, event_id, event_type = row["position"], row["event_id"], row["event_type"]
    refers = row["refers_position"]
    body = _body(ring, workspace_id, session_id, row)
    if body is None:
        return None
    json = splice(body, row["processed_at"])
    return Entry(position, row["kind"], event_id, event_type, body, json, refers)


def _body(ring: SealRing, workspace_id: str, session_id: str, row: Record) -> bytes | None:
    event_id, event_type = row["event_id"], row["event_type"]
    home = row["position"] if row["refers_position"] is None else row["refers_position"]
    if row["body"] is None:
        # Everything else of a deleted session may be gone, but its streams must still end.
        known = event_type == SESSION_DELETED
        return (
            b'{"id":"%b","type":"%b"}' % (event_id.encode(), event_type.encode()) if known else None
        )
    try:
        return log_chain.open_body(ring, row["body"], workspace_id, session_id, home, event_id)[1]
    except SealBroken:
        raise Failure(
            Reason.ERROR_REASON_CORRUPT, f"log entry {home} of session {session_id} does not open"
        ) from None
