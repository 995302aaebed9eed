"""SQL of leases. Their times are the database's clock."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from foundation.storage import Database, Record

# Several threads are locked in the order of sessions, as grouped writes lock theirs: otherwise the
# two could wait for each other.

# Renews the leases of stream `$1` for `$2` milliseconds, and says which of their turns an
# interrupt waits for (2 is TURN_STATE_RUNNING).
_RENEW = """
WITH held AS (
    SELECT thread_id FROM ledger.threads WHERE lease_stream = $1
    ORDER BY workspace_id COLLATE "C", session_id COLLATE "C" FOR UPDATE
), renewed AS (
    UPDATE ledger.threads thread
    SET lease_expires_at = clock_timestamp() + $2 * interval '1 millisecond'
    FROM held WHERE thread.thread_id = held.thread_id
    RETURNING workspace_id, session_id, thread.thread_id, epoch
)
SELECT renewed.*, (
    SELECT turn_id FROM ledger.turns turn
    WHERE turn.thread_id = renewed.thread_id AND turn.state = 2 AND turn.interrupted
    LIMIT 1
) AS interrupted_turn_id
FROM renewed
"""

_FREE_STREAM = """
WITH held AS (
    SELECT thread_id FROM ledger.threads WHERE lease_stream = $1
    ORDER BY workspace_id COLLATE "C", session_id COLLATE "C" FOR UPDATE
)
UPDATE ledger.threads thread SET lease_stream = NULL
FROM held WHERE thread.thread_id = held.thread_id
RETURNING thread.thread_id
"""

# No runner ever heard of them, so none is to blame (2 is EXCUSED).
_FREE_ORPHANS = """
WITH held AS (
    SELECT thread_id FROM ledger.threads
    WHERE lease_stream = $1
        AND (thread_id, epoch) IN (SELECT * FROM unnest($2::text[], $3::bigint[]))
    ORDER BY workspace_id COLLATE "C", session_id COLLATE "C" FOR UPDATE
)
UPDATE ledger.threads thread SET lease_stream = NULL, ended = 2
FROM held WHERE thread.thread_id = held.thread_id
RETURNING thread.thread_id
"""

_FREE_EXPIRED = """
UPDATE ledger.threads SET lease_stream = NULL
WHERE thread_id IN (
    SELECT thread_id FROM ledger.threads
    WHERE lease_stream IS NOT NULL AND lease_expires_at < clock_timestamp()
    FOR UPDATE SKIP LOCKED
)
RETURNING thread_id
"""

_CLAIMABLE = """
SELECT EXISTS (
    SELECT FROM ledger.threads
    WHERE claimable_at <= $1 AND claimable_at IS NOT NULL AND lease_stream IS NULL AND NOT deleted
)
"""

# Uses the index of what can be claimed; its first row is the answer.
_OLDEST = """
SELECT extract(epoch FROM clock_timestamp() - claimable_at)::float8 FROM ledger.threads
WHERE claimable_at <= clock_timestamp() AND claimable_at IS NOT NULL AND lease_stream IS NULL
    AND NOT deleted
ORDER BY claimable_at
LIMIT 1
"""

# What a look every second may find; nothing is written when it finds nothing.
_DUE = """
SELECT EXISTS (
    SELECT FROM ledger.threads
    WHERE lease_stream IS NOT NULL AND lease_expires_at < clock_timestamp()
) AS expired, EXISTS (
    SELECT FROM ledger.threads
    WHERE claimable_at <= $1 AND claimable_at IS NOT NULL AND lease_stream IS NULL AND NOT deleted
) AS claimable, EXISTS (
    SELECT FROM ledger.sessions
    WHERE deleted_at IS NOT NULL AND erased_at IS NULL AND (erasure_offered_at IS NULL
        OR erasure_offered_at < clock_timestamp() - $2 * interval '1 second')
) AS erasable
"""

_FREE_BOOTS = """
WITH held AS (
    SELECT thread_id FROM ledger.threads WHERE starts_with(lease_stream, $1)
    ORDER BY workspace_id COLLATE "C", session_id COLLATE "C" FOR UPDATE
)
UPDATE ledger.threads thread SET lease_stream = NULL
FROM held WHERE thread.thread_id = held.thread_id
RETURNING thread.thread_id
"""


class Due(NamedTuple):
    """Whether there are expired leases, turns to claim, sessions to erase."""

    expired: bool
    claimable: bool
    erasable: bool


async def due(db: Database, now: datetime, erasure_again_s: float) -> Due:
    """What there is to do."""
    row = await db.fetchrow(_DUE, now, erasure_again_s)
    assert row is not None
    return Due(*row)


async def claimable(db: Database, now: datetime) -> bool:
    """Whether any turn can be claimed, as far as a look without a lock can tell."""
    found: bool = await db.fetchval(_CLAIMABLE, now)
    return found


async def queue_age(db: Database) -> float:
    """Seconds that the oldest turn that can be claimed has waited; 0 when there is none."""
    found: float | None = await db.fetchval(_OLDEST)
    return 0.0 if found is None else found


async def renew(db: Database, stream_id: str, lease_ms: int) -> list[Record]:
    """Renew the leases of a stream: thread, epoch and interrupted turn of each."""
    return await db.commit_one("ledger.heartbeat", _RENEW, stream_id, lease_ms)


async def free_stream(db: Database, stream_id: str) -> int:
    """Free what a lost stream still holds; how many leases."""
    return len(await db.commit_one("ledger.free_stream", _FREE_STREAM, stream_id))


async def free_orphans(db: Database, stream_id: str, claims: Sequence[tuple[str, int]]) -> int:
    """Free claims (thread id, epoch) that a stream's runner never heard of; how many."""
    threads = [thread_id for thread_id, _ in claims]
    epochs = [epoch for _, epoch in claims]
    return len(
        await db.commit_one("ledger.free_orphans", _FREE_ORPHANS, stream_id, threads, epochs)
    )


async def free_expired(db: Database) -> int:
    """Free the leases that nobody renewed; how many."""
    return len(await db.commit_one("ledger.free_expired", _FREE_EXPIRED))


async def free_boots(db: Database, prefix: str) -> int:
    """Free the leases of streams whose ids begin with `prefix`; how many. Only for whoever knows
    that no process that made such streams lives."""
    return len(await db.commit_one("ledger.void_leases", _FREE_BOOTS, prefix))
