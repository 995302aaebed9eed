"""What is appended to the public log: positions, times and the chain are computed here, purely but
for the salts.

The caller gives the head that its decision was made on, and stores the rows together with the new
head, if the session's head is still the same then:

    planned = plan(ring, workspace_id, session_id, lane.log, drafts, now)
"""

from collections.abc import Mapping, Sequence
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
    chain = log_chain.chain(workspace_id, session_id)
    position, digest = head.position, head.digest
    queued: dict[str, int] = {}
    rows: list[Row] = []
    for draft in drafts:
        position += 1
        processed_at = None if draft.kind == KIND_QUEUED else moment
        refers = _refers(draft, queued, position)
        sealed, committed = None, b""
        if draft.kind != KIND_MARK:
            salt = new_salt()
            committed = log_chain.committed(salt, draft.body)
            sealed = log_chain.seal_body(
                ring, salt, draft.body, workspace_id, session_id, position, draft.event_id
            )
        if draft.kind == KIND_QUEUED:
            queued[draft.event_id] = position
        else:
            last = moment
        header = log_chain.header(
            position,
            draft.kind,
            draft.event_id,
            draft.event_type,
            processed_at,
            refers,
            draft.transcript_head,
        )
        digest = chain.next(digest, header, committed)
        rows.append(
            Row(
                position,
                draft.kind,
                draft.event_id,
                draft.event_type,
                processed_at,
                refers,
                sealed,
                committed,
                digest,
                draft.transcript_head,
                draft.body,
            )
        )
    return Planned(workspace_id, session_id, tuple(rows), LogHead(position, digest, last))


def _refers(draft: Draft, queued: Mapping[str, int], position: int) -> int | None:
    if draft.kind != KIND_MARK:
        return None
    refers = queued.get(draft.event_id) if draft.refers_position is None else draft.refers_position
    if refers is None or not 0 < refers < position:
        raise ValueError(f"the mark of {draft.event_id} has no queued row before it")
    return refers
