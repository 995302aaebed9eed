"""SQL of what is read of snapshots, one or a page."""

from collections.abc import Sequence

from foundation.storage import Database, Record
from services.context.recipe import ThreadKey

GET = """
SELECT s.id, s.turn_id, s.round, s.attempt_epoch, s.attempt_number, s.recipe_sealed, s.ordinal,
    s.created_at, (
        SELECT p.id FROM context.snapshots p
        WHERE p.workspace_id = $1 AND p.session_id = $2 AND p.thread_id = $3
            AND p.ordinal < s.ordinal
        ORDER BY p.ordinal DESC LIMIT 1
    ) AS parent_id
FROM context.snapshots s
WHERE s.workspace_id = $1 AND s.session_id = $2 AND s.thread_id = $3 AND s.id = $4
"""

# No index has a thread's snapshots in their order: whoever makes one does not pay for readers.
PAGE_ASCENDING = """
WITH made AS (
    SELECT id, ordinal, lag(id) OVER (ORDER BY ordinal) AS parent_id
    FROM context.snapshots
    WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
), page AS (
    SELECT id, parent_id FROM made WHERE $4::bigint IS NULL OR ordinal > $4
    ORDER BY ordinal LIMIT $5
)
SELECT s.id, s.turn_id, s.round, s.attempt_epoch, s.attempt_number, s.recipe_sealed, s.ordinal,
    s.created_at, page.parent_id
FROM page
JOIN context.snapshots s
    ON s.workspace_id = $1 AND s.session_id = $2 AND s.thread_id = $3 AND s.id = page.id
ORDER BY s.ordinal
"""

PAGE_DESCENDING = """
WITH made AS (
    SELECT id, ordinal, lag(id) OVER (ORDER BY ordinal) AS parent_id
    FROM context.snapshots
    WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
), page AS (
    SELECT id, parent_id FROM made WHERE $4::bigint IS NULL OR ordinal < $4
    ORDER BY ordinal DESC LIMIT $5
)
SELECT s.id, s.turn_id, s.round, s.attempt_epoch, s.attempt_number, s.recipe_sealed, s.ordinal,
    s.created_at, page.parent_id
FROM page
JOIN context.snapshots s
    ON s.workspace_id = $1 AND s.session_id = $2 AND s.thread_id = $3 AND s.id = page.id
ORDER BY s.ordinal DESC
"""

GET_COVERED = """
SELECT through_seq FROM context.checkpoints
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND id = $4
"""


# Requests for a summary stand between those for answers, at most one for each.
LIST_NEWEST_OTHERS = """
SELECT id, turn_id, round, attempt_epoch, attempt_number, recipe_sealed FROM context.snapshots
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND id <> $4
ORDER BY ordinal DESC LIMIT 4
"""


async def get(db: Database, key: ThreadKey, id: str) -> Record | None:
    """One snapshot."""
    return await db.fetchrow(GET, *key, id)


async def page(
    db: Database, key: ThreadKey, behind: int | None, limit: int, *, descending: bool
) -> Sequence[Record]:
    """Snapshots of a thread behind an ordinal, in the direction of the page."""
    statement = PAGE_DESCENDING if descending else PAGE_ASCENDING
    return await db.fetch(statement, *key, behind, limit)


async def covered_through(db: Database, key: ThreadKey, checkpoint_id: str) -> int:
    """The last transcript entry that a checkpoint stands for; 0 without one."""
    if not checkpoint_id:
        return 0
    return await db.fetchval(GET_COVERED, *key, checkpoint_id) or 0


async def newest_others(db: Database, key: ThreadKey, id: str) -> Sequence[Record]:
    """The thread's newest snapshots beside one, the newest first; a few."""
    return await db.fetch(LIST_NEWEST_OTHERS, *key, id)
