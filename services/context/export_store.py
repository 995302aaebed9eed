"""SQL of exports and imports that is about more than rows as they are."""

from foundation.exports.cuts import LATER
from foundation.storage import Connection, Database
from services.context.recipe import ThreadKey

# $4 and $5 are the open turns and their rounds, $6 the ledger's epoch.
_RECORDS_KNOWN = """
SELECT COALESCE(min(version), 9223372036854775807) - 1 FROM (
    SELECT version, turn_id, round, epoch FROM context.transitions
    WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
    UNION ALL
    SELECT version, turn_id, round, epoch FROM context.checkpoints
    WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
) recorded
WHERE recorded.epoch > $6 OR {}
""".format((LATER % {"table": "recorded"}).format("$4", "$5"))  # noqa: S608 (a condition of ours)

_PUT_FENCE = """
INSERT INTO context.fences (workspace_id, session_id, thread_id, epoch_max, snapshots, losses)
VALUES ($1, $2, $3, $4, $5, $6)
"""

_PUT_PART_USES = """
INSERT INTO context.part_uses (workspace_id, session_id, thread_id, address)
SELECT $1, $2, $3, address FROM unnest($4::bytea[]) AS given (address)
"""


async def records_known(
    db: Database, key: ThreadKey, turns: tuple[list[str], list[int]], epoch: int
) -> int:
    """Up to which version a thread's records are of rounds that the ledger knew."""
    found: int = await db.fetchval(_RECORDS_KNOWN, *key, *turns, epoch)
    return found


async def put_fence(c: Connection, key: ThreadKey, epoch: int, snapshots: int, losses: int) -> None:
    """The fence of a thread that has none."""
    await c.execute(_PUT_FENCE, *key, epoch, snapshots, losses)


async def put_part_uses(c: Connection, key: ThreadKey, addresses: list[bytes]) -> None:
    """Say which parts a thread uses."""
    await c.execute(_PUT_PART_USES, *key, addresses)
