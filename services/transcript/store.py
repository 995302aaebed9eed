"""SQL of the transcript."""

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from foundation.storage import Connection, Database, Record
from services.transcript.chain import EMPTY_HEAD, StoredEntry, StoredHead, ThreadKey

# The head row is inserted or moved only if it is the expected one and the id is new; everything
# else hangs on that. No row: the writer looks again under the row's lock (ADOPT statements).
APPEND = """
WITH head AS (
    INSERT INTO transcript.heads AS h
        (workspace_id, session_id, thread_id, seq, digest, epoch_max, is_deleted, seal)
    SELECT $1, $2, $3, $7::bigint, $8::bytea, $4::bigint, FALSE, $9::bytea
    WHERE $5::bigint = 0 OR EXISTS (
        SELECT FROM transcript.heads WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
    )
    ON CONFLICT (workspace_id, session_id, thread_id) DO UPDATE
    SET seq = excluded.seq, digest = excluded.digest, epoch_max = excluded.epoch_max,
        seal = excluded.seal
    WHERE h.seq = $5 AND h.digest = $6::bytea AND h.epoch_max <= $4 AND NOT h.is_deleted
      AND NOT EXISTS (
        SELECT FROM transcript.entries e
        WHERE e.workspace_id = $1 AND e.session_id = $2 AND e.thread_id = $3 AND e.entry_id = $10
      )
    RETURNING 1
), entry AS (
    INSERT INTO transcript.entries
        (workspace_id, session_id, thread_id, seq, entry_id, kind, turn_id, round,
         attempt_epoch, attempt_number, epoch, content, commitment, digest)
    SELECT $1, $2, $3, $7, $10::text, $11::smallint, $12::text, $13::integer,
        $14::bigint, $15::integer, $4, $16::bytea, $17::bytea, $8
    FROM head
), names AS (
    INSERT INTO transcript.id_map
        (workspace_id, session_id, thread_id, seq, block_index, operation_id, event_id,
         provider_tool_use_id)
    SELECT $1, $2, $3, $7, n.block_index, n.operation_id, n.event_id, n.provider_tool_use_id
    FROM head, unnest($18::integer[], $19::text[], $20::text[], $21::bytea[])
        AS n(block_index, operation_id, event_id, provider_tool_use_id)
)
SELECT $22::integer AS call FROM head
"""

PAGE_BYTES = 16 * 2**20
"""Bytes of content with which a page ends; with one more entry it still fits in a message."""

CREATE_HEAD = """
INSERT INTO transcript.heads
    (workspace_id, session_id, thread_id, seq, digest, epoch_max, is_deleted, seal)
VALUES ($1, $2, $3, 0, ''::bytea, 0, FALSE, $4)
ON CONFLICT DO NOTHING
"""

PUT_HEAD = """
INSERT INTO transcript.heads
    (workspace_id, session_id, thread_id, seq, digest, epoch_max, is_deleted, seal)
VALUES ($1, $2, $3, $4, $5, $6, FALSE, $7)
"""

LOCK_HEAD = """
SELECT seq, digest, epoch_max, is_deleted, seal FROM transcript.heads
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
FOR UPDATE
"""

SET_EPOCH = """
UPDATE transcript.heads SET epoch_max = $4, is_deleted = $5, seal = $6
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
"""

ENTRY_BY_ID = """
SELECT e.seq, e.entry_id, e.kind, e.turn_id, e.round, e.attempt_epoch, e.attempt_number, e.epoch,
    e.content, e.commitment, e.digest, p.digest AS previous
FROM transcript.entries e
LEFT JOIN transcript.entries p
    ON p.workspace_id = $1 AND p.session_id = $2 AND p.thread_id = $3 AND p.seq = e.seq - 1
WHERE e.workspace_id = $1 AND e.session_id = $2 AND e.thread_id = $3 AND e.entry_id = $4
"""

# A page ends behind the entry with which it holds `$5` bytes; `of_turn` counts all entries.
ENTRIES_OF_TURN = """
SELECT e.seq, e.entry_id, e.kind, e.turn_id, e.round, e.attempt_epoch, e.attempt_number, e.epoch,
    e.content, e.commitment, e.digest, e.of_turn, p.digest AS previous
FROM (
    SELECT n.*, count(*) OVER () AS of_turn,
        sum(coalesce(octet_length(n.content), 0)) OVER (ORDER BY n.seq)
            - coalesce(octet_length(n.content), 0) AS bytes_before
    FROM transcript.entries n
    WHERE n.workspace_id = $1 AND n.session_id = $2 AND n.thread_id = $3 AND n.turn_id = $4
) e
LEFT JOIN transcript.entries p
    ON p.workspace_id = $1 AND p.session_id = $2 AND p.thread_id = $3 AND p.seq = e.seq - 1
WHERE e.bytes_before < $5::bigint
ORDER BY e.seq
"""

# Head and entries in one statement, hence of one moment; in no order, because every node of a plan
# that passes rows on copies what they hold. The head's row has the columns of an entry and two of
# its own: `is_deleted`, and `through`, the last sequence of the whole range. The entry before the
# range comes along for its digest. A page ends behind the entry with which it holds `$6` bytes.
LIST = """
WITH page AS (
    SELECT max(n.seq) AS through, max(n.seq) FILTER (WHERE n.bytes_before < $6::bigint) AS last
    FROM (
        SELECT seq, coalesce(sum(CASE WHEN seq > $4 THEN octet_length(content) END) OVER (
            ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
        FROM transcript.entries
        WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
          AND seq >= $4::bigint AND seq <= $5::bigint
    ) n
)
SELECT h.seq, '' AS entry_id, 0::smallint AS kind, '' AS turn_id, 0 AS round,
    0::bigint AS attempt_epoch, 0 AS attempt_number, h.epoch_max AS epoch, h.seal AS content,
    ''::bytea AS commitment, h.digest, h.is_deleted, page.through
FROM transcript.heads h CROSS JOIN page
WHERE h.workspace_id = $1 AND h.session_id = $2 AND h.thread_id = $3
UNION ALL (
    SELECT e.seq, e.entry_id, e.kind, e.turn_id, e.round, e.attempt_epoch, e.attempt_number,
        e.epoch, CASE WHEN e.seq > $4 THEN e.content END, e.commitment, e.digest, NULL, NULL
    FROM transcript.entries e
    WHERE e.workspace_id = $1 AND e.session_id = $2 AND e.thread_id = $3
      AND e.seq >= $4 AND e.seq <= (SELECT last FROM page)
)
"""

_SEQ_MAX = 2**63 - 1

HEAD = """
SELECT seq, digest, epoch_max, is_deleted, seal FROM transcript.heads
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
"""

# A page ends at a number of entries; the caller bounds its bytes by that number.
PAGE = """
SELECT seq, entry_id, kind, turn_id, round, attempt_epoch, attempt_number, epoch,
    content, commitment, digest
FROM transcript.entries
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND seq > $4
ORDER BY seq
LIMIT $5
"""

PAGE_OF_NAMES = """
SELECT seq, block_index, operation_id, event_id, provider_tool_use_id
FROM transcript.id_map
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND seq > $4 AND seq <= $5
ORDER BY seq, block_index
"""

NAME_BY_OPERATION = """
SELECT n.seq, n.block_index, n.operation_id, n.event_id, n.provider_tool_use_id, e.entry_id
FROM transcript.id_map n
JOIN transcript.entries e USING (workspace_id, session_id, thread_id, seq)
WHERE n.workspace_id = $1 AND n.session_id = $2 AND n.thread_id = $3 AND n.operation_id = $4
ORDER BY n.seq DESC, n.block_index DESC
LIMIT 1
"""

NAME_BY_EVENT = """
SELECT n.seq, n.block_index, n.operation_id, n.event_id, n.provider_tool_use_id, e.entry_id
FROM transcript.id_map n
JOIN transcript.entries e USING (workspace_id, session_id, thread_id, seq)
WHERE n.workspace_id = $1 AND n.session_id = $2 AND n.thread_id = $3 AND n.event_id = $4
ORDER BY n.seq DESC, n.block_index DESC
LIMIT 1
"""

# Newest first, strictly before ($4, $5).
NAMES_BEFORE = """
SELECT n.seq, n.block_index, n.operation_id, n.event_id, n.provider_tool_use_id, e.entry_id
FROM transcript.id_map n
JOIN transcript.entries e USING (workspace_id, session_id, thread_id, seq)
WHERE n.workspace_id = $1 AND n.session_id = $2 AND n.thread_id = $3
  AND (n.seq, n.block_index) < ($4::bigint, $5::integer)
ORDER BY n.seq DESC, n.block_index DESC
LIMIT $6
"""

NOTE_ACCESS = """
INSERT INTO transcript.access
    (workspace_id, session_id, thread_id, access_id, action, request_id, seq, digest)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""

# The thread's head is locked, and stands before the first of these entries.
COPY_ENTRIES = """
INSERT INTO transcript.entries
    (workspace_id, session_id, thread_id, seq, entry_id, kind, turn_id, round,
     attempt_epoch, attempt_number, epoch, content, commitment, digest)
SELECT $1, $2, $3, given.*
FROM unnest($4::bigint[], $5::text[], $6::smallint[], $7::text[], $8::integer[], $9::bigint[],
    $10::integer[], $11::bigint[], $12::bytea[], $13::bytea[], $14::bytea[]) AS given
"""

COPY_NAMES = """
INSERT INTO transcript.id_map
    (workspace_id, session_id, thread_id, seq, block_index, operation_id, event_id,
     provider_tool_use_id)
SELECT $1, $2, $3, given.*
FROM unnest($4::bigint[], $5::integer[], $6::text[], $7::text[], $8::bytea[]) AS given
"""

MOVE_HEAD = """
UPDATE transcript.heads SET seq = $4, digest = $5, epoch_max = $6, seal = $7
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
"""

ERASE_ENTRIES = """
UPDATE transcript.entries SET content = NULL
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND content IS NOT NULL
"""

ERASE_NAMES = """
UPDATE transcript.id_map SET provider_tool_use_id = NULL
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
  AND provider_tool_use_id IS NOT NULL
"""


def entry_of(row: Record) -> StoredEntry:
    """The entry in a row, which begins with its columns."""
    return StoredEntry._make(row[: len(StoredEntry._fields)])


def head_of(row: Record | None) -> StoredHead:
    """The head in a row of `heads`; the empty head without one."""
    if row is None:
        return EMPTY_HEAD
    return StoredHead(row["seq"], row["digest"], row["epoch_max"], row["is_deleted"])


class Listed(NamedTuple):
    """What LIST found: the head with its seal, the last sequence of the range (0: it holds no
    entry), and the entries of its first page in order, with the one before it."""

    head: StoredHead
    seal: bytes
    through: int
    entries: list[StoredEntry]


def append_arguments(
    key: ThreadKey,
    entry: StoredEntry,
    expected_digest: bytes,
    seal: bytes,
    names: Sequence[tuple[int, str, str, bytes]],
) -> list[object]:
    """The arguments of APPEND; `names` are rows of the id map without their seq."""
    return [
        *key,
        entry.epoch,
        entry.seq - 1,
        expected_digest,
        entry.seq,
        entry.digest,
        seal,
        entry.entry_id,
        entry.kind,
        entry.turn_id,
        entry.round,
        entry.attempt_epoch,
        entry.attempt_number,
        entry.content,
        entry.commitment,
        [name[0] for name in names],
        [name[1] for name in names],
        [name[2] for name in names],
        [name[3] for name in names],
    ]


async def lock_head(connection: Connection, key: ThreadKey) -> Record | None:
    """The thread's head row, locked until the transaction ends."""
    return await connection.fetchrow(LOCK_HEAD, *key)


async def create_head(connection: Connection, key: ThreadKey, seal: bytes) -> None:
    """Make sure that the thread has a head row; `seal` is that of the empty head."""
    await connection.execute(CREATE_HEAD, *key, seal)


async def set_epoch(
    connection: Connection, key: ThreadKey, epoch_max: int, is_deleted: bool, seal: bytes
) -> None:
    """Raise the epoch of a locked head, or make it a tombstone."""
    await connection.execute(SET_EPOCH, *key, epoch_max, is_deleted, seal)


async def copy(
    connection: Connection,
    key: ThreadKey,
    entries: Sequence[StoredEntry],
    names: Sequence[tuple[int, int, str, str, bytes]],
    epoch_max: int,
    seal: bytes,
) -> None:
    """Add entries behind the locked head, with their rows of the id map, and move the head to the
    last one; `seal` is that of the head."""
    if names:
        await connection.execute(COPY_NAMES, *key, *map(list, zip(*names, strict=True)))
    await connection.execute(COPY_ENTRIES, *key, *map(list, zip(*entries, strict=True)))
    last = entries[-1]
    await connection.execute(MOVE_HEAD, *key, last.seq, last.digest, epoch_max, seal)


async def list_entries(
    db: Database | Connection, key: ThreadKey, seq_after: int, seq_through: int
) -> Listed | None:
    """Entries behind a sequence, through another or (0) the head; None for a thread that nothing
    was ever written to."""
    through = seq_through or _SEQ_MAX
    rows = await db.fetch(LIST, *key, seq_after, through, PAGE_BYTES)
    of_head = next((row for row in rows if row["is_deleted"] is not None), None)
    if of_head is None:
        return None
    head = StoredHead(of_head["seq"], of_head["digest"], of_head["epoch"], of_head["is_deleted"])
    entries = [entry_of(row) for row in rows if row is not of_head]
    entries.sort(key=itemgetter(0))
    return Listed(head, of_head["content"], of_head["through"] or 0, entries)


async def entries_of_turn(
    connection: Connection, key: ThreadKey, turn_id: str
) -> tuple[list[Record], bool]:
    """The first page of a turn's entries, and whether it has more."""
    rows = await connection.fetch(ENTRIES_OF_TURN, *key, turn_id, PAGE_BYTES)
    return rows, bool(rows) and rows[0]["of_turn"] > len(rows)


async def erase(connection: Connection, key: ThreadKey) -> None:
    """Erase bodies, salts and provider ids of a thread."""
    await connection.execute(ERASE_ENTRIES, *key)
    await connection.execute(ERASE_NAMES, *key)
