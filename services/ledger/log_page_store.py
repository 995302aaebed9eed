"""SQL that reads pages of the public log, through indexes only: no page costs all of history.

A mark's body is that of its queued row, looked up one by one: a join could be planned as a scan.
`$1` is the workspace, `$2` the session. `page_bytes` bounds the sealed bytes of a page behind its
first row; `found` counts the rows that the page would have without that bound.
"""

from datetime import datetime

from foundation.storage import Record
from services.ledger.log_probe import Reader

# Entries behind `$3` and not behind `$4`, at most `$5`, of `$6` bytes. Positions have no gaps: a
# range costs what it holds under every plan, also in a table without statistics.
_ENTRIES = """
SELECT position, kind, event_id, event_type, processed_at, refers_position, body
FROM (
    SELECT entry.*,
        sum(octet_length(body)) OVER (ORDER BY position ROWS UNBOUNDED PRECEDING)
            - octet_length(body) AS bytes_before
    FROM (
        SELECT entry.*, COALESCE(entry.sealed, (
            SELECT original.sealed FROM ledger.log original
            WHERE original.workspace_id = $1 AND original.session_id = $2
                AND original.position = entry.refers_position)) AS body
        FROM ledger.log entry
        WHERE workspace_id = $1 AND session_id = $2 AND position > $3
            AND position <= LEAST($4, $3 + $5)
    ) entry
) page
WHERE COALESCE(bytes_before, 0) < $6
ORDER BY position
"""

# Behind mark `$3` up to `$7`, then queued behind `$4`; at most `$5`, of `$6` bytes.
_ASCENDING = """
WITH marked AS (
    SELECT * FROM ledger.log
    WHERE workspace_id = $1 AND session_id = $2 AND kind <> 2 AND position > $3 AND position <= $7
    ORDER BY position LIMIT $5
), tail AS (
    SELECT entry.* FROM ledger.queued waiting
    JOIN ledger.log entry USING (workspace_id, session_id, position)
    WHERE waiting.workspace_id = $1 AND waiting.session_id = $2 AND waiting.position > $4
    ORDER BY waiting.position LIMIT $5 - (SELECT count(*) FROM marked)
), page AS (
    SELECT 0 AS part, marked.* FROM marked UNION ALL SELECT 1, tail.* FROM tail
), joined AS (
    SELECT page.*, count(*) OVER () AS found, COALESCE(page.sealed, (
        SELECT original.sealed FROM ledger.log original
        WHERE original.workspace_id = $1 AND original.session_id = $2
            AND original.position = page.refers_position)) AS body
    FROM page
)
SELECT part, position, kind, event_id, event_type, processed_at, refers_position, body, found
FROM (
    SELECT joined.*, sum(octet_length(body)) OVER (ORDER BY part, position
        ROWS UNBOUNDED PRECEDING) - octet_length(body) AS bytes_before
    FROM joined
) bounded
WHERE COALESCE(bytes_before, 0) < $6
ORDER BY part, position
"""

# The same, of types `$8`.
_ASCENDING_TYPED = """
WITH marked AS (
    SELECT entry.* FROM unnest($8::text[]) AS wanted (event_type)
    CROSS JOIN LATERAL (
        SELECT * FROM ledger.log
        WHERE workspace_id = $1 AND session_id = $2 AND event_type = wanted.event_type
            AND kind <> 2 AND position > $3 AND position <= $7
        ORDER BY position LIMIT $5
    ) entry
    ORDER BY entry.position LIMIT $5
), tail AS (
    SELECT entry.* FROM ledger.queued waiting
    JOIN ledger.log entry USING (workspace_id, session_id, position)
    WHERE waiting.workspace_id = $1 AND waiting.session_id = $2 AND waiting.position > $4
        AND entry.event_type = ANY ($8::text[])
    ORDER BY waiting.position LIMIT $5 - (SELECT count(*) FROM marked)
), page AS (
    SELECT 0 AS part, marked.* FROM marked UNION ALL SELECT 1, tail.* FROM tail
), joined AS (
    SELECT page.*, count(*) OVER () AS found, COALESCE(page.sealed, (
        SELECT original.sealed FROM ledger.log original
        WHERE original.workspace_id = $1 AND original.session_id = $2
            AND original.position = page.refers_position)) AS body
    FROM page
)
SELECT part, position, kind, event_id, event_type, processed_at, refers_position, body, found
FROM (
    SELECT joined.*, sum(octet_length(body)) OVER (ORDER BY part, position
        ROWS UNBOUNDED PRECEDING) - octet_length(body) AS bytes_before
    FROM joined
) bounded
WHERE COALESCE(bytes_before, 0) < $6
ORDER BY part, position
"""

# Queued before `$4`, then before mark `$3` and behind `$7`; at most `$5`, of `$6` bytes.
_DESCENDING = """
WITH tail AS (
    SELECT entry.* FROM ledger.queued waiting
    JOIN ledger.log entry USING (workspace_id, session_id, position)
    WHERE waiting.workspace_id = $1 AND waiting.session_id = $2 AND waiting.position < $4
    ORDER BY waiting.position DESC LIMIT $5
), marked AS (
    SELECT * FROM ledger.log
    WHERE workspace_id = $1 AND session_id = $2 AND kind <> 2 AND position < $3 AND position > $7
    ORDER BY position DESC LIMIT $5 - (SELECT count(*) FROM tail)
), page AS (
    SELECT 0 AS part, marked.* FROM marked UNION ALL SELECT 1, tail.* FROM tail
), joined AS (
    SELECT page.*, count(*) OVER () AS found, COALESCE(page.sealed, (
        SELECT original.sealed FROM ledger.log original
        WHERE original.workspace_id = $1 AND original.session_id = $2
            AND original.position = page.refers_position)) AS body
    FROM page
)
SELECT part, position, kind, event_id, event_type, processed_at, refers_position, body, found
FROM (
    SELECT joined.*, sum(octet_length(body)) OVER (ORDER BY part DESC, position DESC
        ROWS UNBOUNDED PRECEDING) - octet_length(body) AS bytes_before
    FROM joined
) bounded
WHERE COALESCE(bytes_before, 0) < $6
ORDER BY part DESC, position DESC
"""

# The same, of types `$8`.
_DESCENDING_TYPED = """
WITH tail AS (
    SELECT entry.* FROM ledger.queued waiting
    JOIN ledger.log entry USING (workspace_id, session_id, position)
    WHERE waiting.workspace_id = $1 AND waiting.session_id = $2 AND waiting.position < $4
        AND entry.event_type = ANY ($8::text[])
    ORDER BY waiting.position DESC LIMIT $5
), marked AS (
    SELECT entry.* FROM unnest($8::text[]) AS wanted (event_type)
    CROSS JOIN LATERAL (
        SELECT * FROM ledger.log
        WHERE workspace_id = $1 AND session_id = $2 AND event_type = wanted.event_type
            AND kind <> 2 AND position < $3 AND position > $7
        ORDER BY position DESC LIMIT $5
    ) entry
    ORDER BY entry.position DESC LIMIT $5 - (SELECT count(*) FROM tail)
), page AS (
    SELECT 0 AS part, marked.* FROM marked UNION ALL SELECT 1, tail.* FROM tail
), joined AS (
    SELECT page.*, count(*) OVER () AS found, COALESCE(page.sealed, (
        SELECT original.sealed FROM ledger.log original
        WHERE original.workspace_id = $1 AND original.session_id = $2
            AND original.position = page.refers_position)) AS body
    FROM page
)
SELECT part, position, kind, event_id, event_type, processed_at, refers_position, body, found
FROM (
    SELECT joined.*, sum(octet_length(body)) OVER (ORDER BY part DESC, position DESC
        ROWS UNBOUNDED PRECEDING) - octet_length(body) AS bytes_before
    FROM joined
) bounded
WHERE COALESCE(bytes_before, 0) < $6
ORDER BY part DESC, position DESC
"""

# Of the sessions (`$1`, `$2`) that were read to `$3`, those that have more.
_BEHIND = """
SELECT workspace_id, session_id
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS watched (workspace_id, session_id, through)
WHERE EXISTS (
    SELECT FROM ledger.log entry
    WHERE entry.workspace_id = watched.workspace_id AND entry.session_id = watched.session_id
        AND entry.position > watched.through)
"""

# Whole rows behind `$3`, at most `$4`.
_ROWS = """
SELECT position, kind, event_id, event_type, processed_at, refers_position, sealed, commitment,
    digest, transcript_seq, transcript_digest
FROM ledger.log
WHERE workspace_id = $1 AND session_id = $2 AND position > $3
ORDER BY position LIMIT $4
"""

# The last position up to `$3` such that no mark or event up to it is later than `$4` (with `$5`,
# not earlier either). Times never go back, so halving finds it: a few probes, whatever the length.
_THROUGH = """
WITH RECURSIVE search (low, high) AS (
    SELECT 0::bigint, $3::bigint
    UNION ALL
    SELECT CASE WHEN probe.position IS NULL OR probe.is_before THEN middle.at ELSE search.low END,
        CASE WHEN probe.position IS NULL OR probe.is_before THEN search.high
            ELSE probe.position - 1 END
    FROM search
    CROSS JOIN LATERAL (SELECT (search.low + search.high + 1) / 2 AS at) middle
    LEFT JOIN LATERAL (
        SELECT position, CASE WHEN $5::boolean THEN date_trunc('milliseconds', processed_at) < $4
            ELSE date_trunc('milliseconds', processed_at) <= $4 END AS is_before
        FROM ledger.log
        WHERE workspace_id = $1 AND session_id = $2 AND kind <> 2
            AND position > search.low AND position <= middle.at
        ORDER BY position DESC LIMIT 1
    ) probe ON true
    WHERE search.low < search.high
)
SELECT low FROM search WHERE low >= high LIMIT 1
"""

_QUEUED = """
SELECT position FROM ledger.queued
WHERE workspace_id = $1 AND session_id = $2
ORDER BY position
"""


async def entries(
    reader: Reader,
    workspace_id: str,
    session_id: str,
    after: int,
    through: int,
    limit: int,
    page_bytes: int,
) -> list[Record]:
    """Entries with positions in (after, through], in order, with the sealed body of each."""
    return await reader.fetch(_ENTRIES, workspace_id, session_id, after, through, limit, page_bytes)


async def history(
    reader: Reader,
    workspace_id: str,
    session_id: str,
    *,
    descending: bool,
    marked: int,
    queued: int,
    limit: int,
    page_bytes: int,
    bound: int,
    types: list[str],
) -> list[Record]:
    """A page of events in the order of the history, from one snapshot; `part` 1 are queued ones.

    `bound` ends the marked part: its last position ascending, the one before its first descending.
    """
    arguments = (workspace_id, session_id, marked, queued, limit, page_bytes, bound)
    if types:
        sql = _DESCENDING_TYPED if descending else _ASCENDING_TYPED
        return await reader.fetch(sql, *arguments, types)
    return await reader.fetch(_DESCENDING if descending else _ASCENDING, *arguments)


async def through(
    reader: Reader, workspace_id: str, session_id: str, head: int, time: datetime, *, before: bool
) -> int:
    """The last position up to `head` that lies, with all before it, at or `before` a time."""
    row = await reader.fetchrow(_THROUGH, workspace_id, session_id, head, time, before)
    return 0 if row is None else row["low"]


async def behind(reader: Reader, watched: list[tuple[str, str, int]]) -> list[tuple[str, str]]:
    """Of (workspace id, session id, position), those sessions whose log goes on behind it."""
    rows = await reader.fetch(
        _BEHIND,
        [workspace_id for workspace_id, _, _ in watched],
        [session_id for _, session_id, _ in watched],
        [position for _, _, position in watched],
    )
    return [(row["workspace_id"], row["session_id"]) for row in rows]


async def rows(
    reader: Reader, workspace_id: str, session_id: str, after: int, limit: int
) -> list[Record]:
    """Whole stored rows behind a position, in order."""
    return await reader.fetch(_ROWS, workspace_id, session_id, after, limit)


async def queued_positions(reader: Reader, workspace_id: str, session_id: str) -> list[int]:
    """Positions that the index of queued rows holds."""
    found = await reader.fetch(_QUEUED, workspace_id, session_id)
    return [row["position"] for row in found]
