"""SQL of what is read of snapshots, one or a page."""

from collections.abc import Sequence

from foundation.storage import Database, Record
from services.context.recipe import ThreadKey

GET = """
SELECT id, turn_id, round, attempt_epoch, attempt_number, recipe_sealed, ordinal, created_at
FROM context.snapshots
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND id = $4
"""

# No index has a thread's snapshots in their order: whoever makes one does not pay for readers.
PAGE_ASCENDING = """
SELECT id, turn_id, round, attempt_epoch, attempt_number, recipe_sealed, ordinal, created_at
FROM context.snapshots
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
    AND ($4::bigint IS NULL OR ordinal > $4)
ORDER BY ordinal LIMIT $5
"""

PAGE_DESCENDING = """
SELECT id, turn_id, round, attempt_epoch, attempt_number, recipe_sealed, ordinal, created_at
FROM context.snapshots
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
    AND ($4::bigint IS NULL OR ordinal < $4)
ORDER BY ordinal DESC LIMIT $5
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
