"""SQL of the list of sessions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from foundation.storage import Database, Record

# Keyset pages: those behind the place (`$2`, `$3`) in the direction of the scan. `found` counts
# them all, at most `$12`; sessions are returned while those before them hold less than `$13` bytes.
_DESCENDING = """
WITH page AS (
    SELECT session_id, thread_id, environment_id, pinned, status, input_tokens, output_tokens,
        cache_read_tokens, cache_creation_tokens, cache_creation_1h_tokens, web_searches,
        web_fetches, active_ms, running_since, created_at, updated_at, archived_at
    FROM ledger.sessions
    WHERE workspace_id = $1 AND deleted_at IS NULL AND (created_at, session_id) < ($2, $3)
        AND ($4::text IS NULL OR agent_id = $4) AND ($5::bigint IS NULL OR agent_version = $5)
        AND ($6 OR archived_at IS NULL) AND ($7::smallint[] IS NULL OR status = ANY ($7))
        AND ($8::timestamptz IS NULL OR created_at > $8)
        AND ($9::timestamptz IS NULL OR created_at >= $9)
        AND ($10::timestamptz IS NULL OR created_at < $10)
        AND ($11::timestamptz IS NULL OR created_at <= $11)
    ORDER BY created_at DESC, session_id DESC
    LIMIT $12
), sized AS (
    SELECT page.*, count(*) OVER () AS found,
        sum(octet_length(pinned)) OVER (ORDER BY created_at DESC, session_id DESC)
            - octet_length(pinned) AS bytes_before
    FROM page
)
SELECT * FROM sized WHERE bytes_before < $13 ORDER BY created_at DESC, session_id DESC
"""

_ASCENDING = """
WITH page AS (
    SELECT session_id, thread_id, environment_id, pinned, status, input_tokens, output_tokens,
        cache_read_tokens, cache_creation_tokens, cache_creation_1h_tokens, web_searches,
        web_fetches, active_ms, running_since, created_at, updated_at, archived_at
    FROM ledger.sessions
    WHERE workspace_id = $1 AND deleted_at IS NULL AND (created_at, session_id) > ($2, $3)
        AND ($4::text IS NULL OR agent_id = $4) AND ($5::bigint IS NULL OR agent_version = $5)
        AND ($6 OR archived_at IS NULL) AND ($7::smallint[] IS NULL OR status = ANY ($7))
        AND ($8::timestamptz IS NULL OR created_at > $8)
        AND ($9::timestamptz IS NULL OR created_at >= $9)
        AND ($10::timestamptz IS NULL OR created_at < $10)
        AND ($11::timestamptz IS NULL OR created_at <= $11)
    ORDER BY created_at, session_id
    LIMIT $12
), sized AS (
    SELECT page.*, count(*) OVER () AS found,
        sum(octet_length(pinned)) OVER (ORDER BY created_at, session_id)
            - octet_length(pinned) AS bytes_before
    FROM page
)
SELECT * FROM sized WHERE bytes_before < $13 ORDER BY created_at, session_id
"""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a session in the order of creation."""

    created_at: datetime
    session_id: str

    @classmethod
    def of(cls, row: Record) -> Self:
        """The place of a row."""
        return cls(row["created_at"], row["session_id"])


_BEFORE_ALL = Place(datetime(1, 1, 1, tzinfo=UTC), "")
_BEHIND_ALL = Place(datetime(9999, 12, 31, tzinfo=UTC), "")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which sessions are listed; None for no bound. Times are of creation."""

    agent_id: str | None = None
    agent_version: int | None = None
    include_archived: bool = False
    statuses: Sequence[int] | None = None
    after: datetime | None = None
    since: datetime | None = None
    before: datetime | None = None
    until: datetime | None = None

    def admit(self, created_at: datetime) -> bool:
        """Whether a session of this time is within the bounds of time."""
        return (
            (self.after is None or created_at > self.after)
            and (self.since is None or created_at >= self.since)
            and (self.before is None or created_at < self.before)
            and (self.until is None or created_at <= self.until)
        )


async def page(
    db: Database,
    workspace_id: str,
    bounds: Bounds,
    place: Place | None,
    *,
    descending: bool,
    limit: int,
    page_bytes: int,
) -> list[Record]:
    """Sessions behind a place in this direction; the first has `found`, how many there are."""
    start = place or (_BEHIND_ALL if descending else _BEFORE_ALL)
    return await db.fetch(
        _DESCENDING if descending else _ASCENDING,
        workspace_id,
        start.created_at,
        start.session_id,
        bounds.agent_id,
        bounds.agent_version,
        bounds.include_archived,
        bounds.statuses,
        bounds.after,
        bounds.since,
        bounds.before,
        bounds.until,
        limit,
        page_bytes,
    )
