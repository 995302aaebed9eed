"""What is appended to the public log: positions, times and the chain are computed here, purely but
for the salts.

The caller gives the head that its decision was made on, and stores the rows together with the new
head, if the session's head is still the same then:

    planned = plan(ring, workspace_id, session_id, lane.log, drafts, now)
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Self

from counterfoil.ledger.v1 import events_pb2
from counterfoil.types.v1.reference_pb2 import Head

from foundation import json
from foundation.digests import new_salt
from foundation.storage import SealRing
from services.ledger import log_chain
from services.ledger.log_row import (
    KIND_EVENT,
    KIND_MARK,
    KIND_QUEUED,
    LogHead,
    Planned,
    Row,
    splice,
)

__all__ = ["Draft", "LogHead", "Planned", "Row", "plan", "render", "splice"]


class Draft(NamedTuple):
    """An entry to append. Use the constructors."""

    kind: int
    event_id: str
    event_type: str
    body: bytes = b""
    refers_position: int | None = None
    transcript_head: Head | None = None

    @classmethod
    def event(
        cls, event_id: str, event_type: str, body: bytes, transcript_head: Head | None = None
    ) -> Self:
        """An event that takes effect now. `body` comes from `render`."""
        return cls(KIND_EVENT, event_id, event_type, body, None, transcript_head)

    @classmethod
    def queued(cls, event_id: str, event_type: str, body: bytes) -> Self:
        """An event that waits; its mark follows when it is processed."""
        return cls(KIND_QUEUED, event_id, event_type, body)

    @classmethod
    def mark(cls, event_id: str, event_type: str, refers_position: int | None = None) -> Self:
        """A queued event takes effect now. Without a position: one queued by the same plan."""
        return cls(KIND_MARK, event_id, event_type, b"", refers_position)


def render(event: events_pb2.Event) -> bytes:
    """The stored body of an event: its JSON without `processed_at`. Raises ValueError."""
    return json.encode(event, omit=("processed_at",))


def plan(
    ring: SealRing,
    workspace_id: str,
    session_id: str,
    head: LogHead,
    drafts: Sequence[Draft],
    now: datetime,
) -> Planned:
    """Give the drafts their positions behind `head`, their time, and their place in the chain.

    The time is `max(now, the log's last)`, the same for the whole plan; `now` is aware. Raises
    ValueError for a mark without its queued row.
    """
    last = head.last_processed_at
    moment = now.astimezone(UTC) if last is None or now > last else last
    writer = log_chain.writer(ring, workspace_id, session_id)
    position, digest = head.position, head.digest
    queued: dict[str, int] = {}
    rows: list[Row] = []
    for draft in drafts:
        position += 1
        kind, event_id, event_type, body, refers, transcript_head = draft
        processed_at, sealed, committed = moment, None, b""
        if kind == KIND_MARK:
            found = queued.get(event_id) if refers is None else refers
            refers = _referred(event_id, found, position)
        else:
            salt = new_salt()
            committed = log_chain.committed(salt, body)
            sealed = writer.seal(salt, body, position, event_id)
        if kind == KIND_QUEUED:
            processed_at = None
            queued[event_id] = position
        else:
            last = moment
        header = log_chain.header(
            position, kind, event_id, event_type, processed_at, refers, transcript_head
        )
        digest = writer.chain.next(digest, header, committed)
        rows.append(
            Row(
                position,
                kind,
                event_id,
                event_type,
                processed_at,
                refers,
                sealed,
                committed,
                digest,
                transcript_head,
                body,
            )
        )
    return Planned(workspace_id, session_id, tuple(rows), LogHead(position, digest, last))


def _referred(event_id: str, position: int | None, own: int) -> int:
    if position is None or not 0 < position < own:
        raise ValueError(f"the mark of {event_id} has no queued row before it")
    return position
