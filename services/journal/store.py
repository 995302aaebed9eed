"""SQL of the journal.

Every write is one statement: it locks the thread's fence row first, raises the epoch, and does the
rest only if that was allowed and the operations stand where the decision saw them. What it
returns is empty when it did nothing; the caller then reads and decides again.

`$4` is the writer's epoch; 0 stands for a step that the nonce authorises. What is sent often
returns its last parameter, by which `Database.commit_grouped` knows whose rows they are.
"""

# Columns of an operation as `rows.StoredOperation` has them, with its outcome. The ids stand in
# each join, so that no plan reads all outcomes of a long thread for some of its operations.
READ = """
SELECT f.epoch_max, f.is_deleted,
    o.operation_id, o.kind, o.state, o.turn_id, o.round, o.attempt_epoch, o.attempt_number,
    o.block_index, o.owner, o.tool_name, o.tool_version, o.nonce_digest, o.started_at,
    o.deadline_at, o.snapshot_id, o.answer_digest,
    d.source, d.projection, d.redactor, l.operation_id IS NOT NULL AS has_late_outcome
FROM (SELECT 1) AS one
LEFT JOIN journal.fences f
    ON f.workspace_id = $1 AND f.session_id = $2 AND f.thread_id = $3
LEFT JOIN journal.operations o
    ON o.workspace_id = $1 AND o.session_id = $2 AND o.thread_id = $3
    AND o.operation_id = ANY($4::text[])
LEFT JOIN journal.outcomes d
    ON d.workspace_id = $1 AND d.session_id = $2 AND d.thread_id = $3
    AND d.operation_id = ANY($4::text[]) AND d.operation_id = o.operation_id AND d.role = 2
LEFT JOIN journal.outcomes l
    ON l.workspace_id = $1 AND l.session_id = $2 AND l.thread_id = $3
    AND l.operation_id = ANY($4::text[]) AND l.operation_id = o.operation_id AND l.role = 3
"""

# All operations of a thread ($4 null) or of one turn, oldest first.
LIST = """
SELECT o.operation_id, o.kind, o.state, o.turn_id, o.round, o.attempt_epoch, o.attempt_number,
    o.block_index, o.owner, o.tool_name, o.tool_version, o.nonce_digest, o.started_at,
    o.deadline_at, o.snapshot_id, o.answer_digest,
    d.source, d.projection, d.redactor, l.operation_id IS NOT NULL AS has_late_outcome
FROM journal.operations o
LEFT JOIN journal.outcomes d
    ON d.workspace_id = $1 AND d.session_id = $2 AND d.thread_id = $3
    AND d.operation_id = o.operation_id AND d.role = 2
LEFT JOIN journal.outcomes l
    ON l.workspace_id = $1 AND l.session_id = $2 AND l.thread_id = $3
    AND l.operation_id = o.operation_id AND l.role = 3
WHERE o.workspace_id = $1 AND o.session_id = $2 AND o.thread_id = $3
  AND ($4::text IS NULL OR o.turn_id = $4)
ORDER BY o.created_at, o.round, o.attempt_epoch, o.attempt_number, o.block_index, o.operation_id
"""

RAWS = """
SELECT operation_id, role, raw FROM journal.outcomes
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
  AND operation_id = ANY($4::text[]) AND raw IS NOT NULL
"""

INPUTS = """
SELECT operation_id, input FROM journal.operations
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
  AND operation_id = ANY($4::text[]) AND input IS NOT NULL
"""

# What executors said about calls that had been declared ambiguous, and no history tells of yet.
LATE = """
SELECT l.operation_id, o.tool_name, l.raw
FROM journal.outcomes l
JOIN journal.operations o
    ON o.workspace_id = $1 AND o.session_id = $2 AND o.thread_id = $3
    AND o.operation_id = l.operation_id
WHERE l.workspace_id = $1 AND l.session_id = $2 AND l.thread_id = $3
  AND l.role = 3 AND l.source = 1 AND l.raw IS NOT NULL AND o.state = 5
  AND NOT EXISTS (
    SELECT FROM journal.outcomes n
    WHERE n.workspace_id = $1 AND n.session_id = $2 AND n.thread_id = $3
      AND n.operation_id = l.operation_id AND n.role = 4
  )
ORDER BY l.created_at, l.operation_id
LIMIT $4
"""

# Provider calls of other turns, and of earlier owners of this one, have no owner any more: whether
# they ran is not known.
FENCE = """
WITH fence AS (
    INSERT INTO journal.fences AS f (workspace_id, session_id, thread_id, epoch_max, is_deleted)
    VALUES ($1, $2, $3, $4::bigint, FALSE)
    ON CONFLICT (workspace_id, session_id, thread_id) DO UPDATE SET epoch_max = excluded.epoch_max
    WHERE NOT f.is_deleted AND f.epoch_max <= $4
    RETURNING 1
), stray AS (
    UPDATE journal.operations o SET state = 5
    FROM fence
    WHERE o.workspace_id = $1 AND o.session_id = $2 AND o.thread_id = $3
      AND o.kind = 1 AND o.state = 2
      AND (o.turn_id <> $5 OR o.attempt_epoch < $4)
)
SELECT 1 FROM fence
"""

# $5 the provider call that this ends; $6 the state in which it was seen: -1 for no call at all,
# 0 when it has no row. One that has ended with the same answer is as good. Then the tool calls.
PREPARE = """
WITH fence AS (
    INSERT INTO journal.fences AS f (workspace_id, session_id, thread_id, epoch_max, is_deleted)
    VALUES ($1, $2, $3, $4::bigint, FALSE)
    ON CONFLICT (workspace_id, session_id, thread_id) DO UPDATE SET epoch_max = excluded.epoch_max
    WHERE NOT f.is_deleted AND f.epoch_max <= $4
    RETURNING 1
), ended AS (
    UPDATE journal.operations o
    SET state = 4, answer_digest = coalesce(o.answer_digest, $7::bytea), failure = $8::text
    FROM fence
    WHERE o.workspace_id = $1 AND o.session_id = $2 AND o.thread_id = $3
      AND o.operation_id = $5::text AND o.kind = 1 AND o.state = $6::smallint
    RETURNING 1
), born AS (
    INSERT INTO journal.operations
        (workspace_id, session_id, thread_id, operation_id, kind, state, turn_id, round,
         attempt_epoch, attempt_number, block_index, owner, tool_name, tool_version,
         snapshot_id, answer_digest, failure)
    SELECT $1, $2, $3, $5, 1, 4, $9::text, $10::integer, $11::bigint, $12::integer, -1, 0, '', '',
        '', $7, $8
    FROM fence WHERE $6 = 0
    ON CONFLICT DO NOTHING
    RETURNING 1
), granted AS (
    SELECT FROM fence
    WHERE $6 = -1 OR EXISTS (SELECT FROM ended) OR EXISTS (SELECT FROM born) OR EXISTS (
        SELECT FROM journal.operations o
        WHERE o.workspace_id = $1 AND o.session_id = $2 AND o.thread_id = $3
          AND o.operation_id = $5 AND o.kind = 1 AND o.state = 4 AND o.answer_digest = $7
    )
), made AS (
    INSERT INTO journal.operations
        (workspace_id, session_id, thread_id, operation_id, kind, state, turn_id, round,
         attempt_epoch, attempt_number, block_index, owner, tool_name, tool_version, input,
         snapshot_id, failure)
    SELECT $1, $2, $3, n.operation_id, 2, 1, $9, $10, $11, $12, n.block_index, n.owner,
        n.tool_name, n.tool_version, n.input, '', ''
    FROM granted, unnest($13::text[], $14::integer[], $15::smallint[], $16::bytea[], $17::text[],
        $18::bytea[]) AS n(operation_id, block_index, owner, tool_name, tool_version, input)
    ON CONFLICT DO NOTHING
    RETURNING operation_id
)
SELECT $19::integer AS call, made.operation_id FROM granted LEFT JOIN made ON TRUE
"""

START = """
WITH fence AS (
    INSERT INTO journal.fences AS f (workspace_id, session_id, thread_id, epoch_max, is_deleted)
    VALUES ($1, $2, $3, $4::bigint, FALSE)
    ON CONFLICT (workspace_id, session_id, thread_id) DO UPDATE SET epoch_max = excluded.epoch_max
    WHERE NOT f.is_deleted AND f.epoch_max <= $4
    RETURNING 1
)
UPDATE journal.operations o
SET state = 2, nonce_digest = $6::bytea, started_at = clock_timestamp(),
    deadline_at = clock_timestamp() + $7::bigint * interval '1 millisecond'
FROM fence
WHERE o.workspace_id = $1 AND o.session_id = $2 AND o.thread_id = $3
  AND o.operation_id = $5::text AND o.kind = 2 AND o.state = 1
RETURNING o.operation_id, o.kind, o.state, o.turn_id, o.round, o.attempt_epoch, o.attempt_number,
    o.block_index, o.owner, o.tool_name, o.tool_version, o.nonce_digest, o.started_at,
    o.deadline_at, o.snapshot_id, o.answer_digest,
    NULL::smallint AS source, NULL::bytea AS projection, NULL::text AS redactor,
    FALSE AS has_late_outcome,
    $8::integer AS call
"""

START_MODEL_CALL = """
WITH fence AS (
    INSERT INTO journal.fences AS f (workspace_id, session_id, thread_id, epoch_max, is_deleted)
    VALUES ($1, $2, $3, $4::bigint, FALSE)
    ON CONFLICT (workspace_id, session_id, thread_id) DO UPDATE SET epoch_max = excluded.epoch_max
    WHERE NOT f.is_deleted AND f.epoch_max <= $4
    RETURNING 1
)
INSERT INTO journal.operations AS o
    (workspace_id, session_id, thread_id, operation_id, kind, state, turn_id, round,
     attempt_epoch, attempt_number, block_index, owner, tool_name, tool_version,
     nonce_digest, started_at, deadline_at, request_digest, snapshot_id, failure)
SELECT $1, $2, $3, $5::text, 1, 2, $8::text, $9::integer, $10::bigint, $11::integer, -1, 0, '', '',
    $6::bytea, clock_timestamp(), clock_timestamp() + $7::bigint * interval '1 millisecond',
    $12::bytea, $13::text, ''
FROM fence
ON CONFLICT DO NOTHING
RETURNING o.operation_id, o.kind, o.state, o.turn_id, o.round, o.attempt_epoch, o.attempt_number,
    o.block_index, o.owner, o.tool_name, o.tool_version, o.nonce_digest, o.started_at,
    o.deadline_at, o.snapshot_id, o.answer_digest,
    NULL::smallint AS source, NULL::bytea AS projection, NULL::text AS redactor,
    FALSE AS has_late_outcome,
    $14::integer AS call
"""

# Moves operations that were seen in a state ($5, $6 → $7), all or none, and creates closed ones
# that have no row ($9, $10). $8: the nonce that they must have been started with, or null.
# Outcomes of an operation that somebody else created meanwhile are left out. Of raw outcomes that
# nobody needs any more the digest takes the place ($22 to $24).
DECIDE = """
WITH fence AS (
    INSERT INTO journal.fences AS f (workspace_id, session_id, thread_id, epoch_max, is_deleted)
    SELECT $1, $2, $3, $4::bigint, FALSE
    WHERE $4 > 0 OR EXISTS (
        SELECT FROM journal.fences WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
    )
    ON CONFLICT (workspace_id, session_id, thread_id)
    DO UPDATE SET epoch_max = greatest(f.epoch_max, excluded.epoch_max)
    WHERE NOT f.is_deleted AND ($4 = 0 OR f.epoch_max <= $4)
    RETURNING 1
), held AS (
    SELECT o.operation_id, o.kind, o.turn_id, o.round, o.attempt_epoch, o.attempt_number,
        o.block_index, o.owner, o.tool_name, o.tool_version, o.nonce_digest, o.started_at,
        o.deadline_at, o.snapshot_id, o.answer_digest
    FROM fence, unnest($5::text[], $6::smallint[]) AS e(operation_id, state)
    JOIN journal.operations o ON o.operation_id = e.operation_id
    WHERE o.workspace_id = $1 AND o.session_id = $2 AND o.thread_id = $3 AND o.state = e.state
      AND ($8::bytea IS NULL OR (o.nonce_digest = $8 AND o.kind = 2))
    FOR UPDATE OF o
), granted AS (
    SELECT FROM fence WHERE (SELECT count(*) FROM held) = cardinality($5)
), moved AS (
    UPDATE journal.operations o SET state = e.state
    FROM granted, unnest($5, $7::smallint[]) AS e(operation_id, state)
    WHERE o.workspace_id = $1 AND o.session_id = $2 AND o.thread_id = $3
      AND o.operation_id = e.operation_id AND o.state <> e.state
), born AS (
    INSERT INTO journal.operations
        (workspace_id, session_id, thread_id, operation_id, state, kind, turn_id, round,
         attempt_epoch, attempt_number, block_index, owner, tool_name, tool_version,
         snapshot_id, failure)
    SELECT $1, $2, $3, n.operation_id, n.state, $11::smallint, $12::text, $13::integer,
        $14::bigint, $15::integer, -1, 0, '', '', '', ''
    FROM granted, unnest($9::text[], $10::smallint[]) AS n(operation_id, state)
    ON CONFLICT DO NOTHING
    RETURNING operation_id
), kept AS (
    INSERT INTO journal.outcomes
        (workspace_id, session_id, thread_id, operation_id, role, source, raw, projection,
         redactor)
    SELECT $1, $2, $3, k.operation_id, k.role, k.source, k.raw, k.projection, k.redactor
    FROM granted, unnest($16::text[], $17::smallint[], $18::smallint[], $19::bytea[], $20::bytea[],
        $21::text[]) AS k(operation_id, role, source, raw, projection, redactor)
    WHERE k.operation_id = ANY($5) OR k.operation_id IN (SELECT operation_id FROM born)
    ON CONFLICT DO NOTHING
), shortened AS (
    UPDATE journal.outcomes d SET raw = s.raw
    FROM granted, unnest($22::text[], $23::smallint[], $24::bytea[]) AS s(operation_id, role, raw)
    WHERE d.workspace_id = $1 AND d.session_id = $2 AND d.thread_id = $3
      AND d.operation_id = s.operation_id AND d.role = s.role AND d.raw IS NOT NULL
)
SELECT $25::integer AS call, (SELECT count(*) FROM born) AS born, held.*
FROM granted LEFT JOIN held ON TRUE
"""

# DECIDE for what nearly always happens: one operation ($5) changes its state ($6 → $7) and keeps
# one outcome. Plain parameters cost both sides half of what arrays do.
DECIDE_ONE = """
WITH fence AS (
    INSERT INTO journal.fences AS f (workspace_id, session_id, thread_id, epoch_max, is_deleted)
    SELECT $1, $2, $3, $4::bigint, FALSE
    WHERE $4 > 0 OR EXISTS (
        SELECT FROM journal.fences WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
    )
    ON CONFLICT (workspace_id, session_id, thread_id)
    DO UPDATE SET epoch_max = greatest(f.epoch_max, excluded.epoch_max)
    WHERE NOT f.is_deleted AND ($4 = 0 OR f.epoch_max <= $4)
    RETURNING 1
), moved AS (
    UPDATE journal.operations o SET state = $7::smallint
    FROM fence
    WHERE o.workspace_id = $1 AND o.session_id = $2 AND o.thread_id = $3
      AND o.operation_id = $5::text AND o.state = $6::smallint
      AND ($8::bytea IS NULL OR (o.nonce_digest = $8 AND o.kind = 2))
    RETURNING o.operation_id, o.kind, o.turn_id, o.round, o.attempt_epoch, o.attempt_number,
        o.block_index, o.owner, o.tool_name, o.tool_version, o.nonce_digest, o.started_at,
        o.deadline_at, o.snapshot_id, o.answer_digest
), kept AS (
    INSERT INTO journal.outcomes
        (workspace_id, session_id, thread_id, operation_id, role, source, raw, projection,
         redactor)
    SELECT $1, $2, $3, $5, $9::smallint, $10::smallint, $11::bytea, $12::bytea, $13::text
    FROM moved
    ON CONFLICT DO NOTHING
)
SELECT $14::integer AS call, moved.* FROM moved
"""

# Tool calls that are over, with what the model sees of them, or the record of its redaction.
COPIED = """
SELECT o.operation_id, o.state, o.turn_id, o.round, o.attempt_epoch, o.attempt_number,
    o.block_index, o.owner, o.tool_name, o.tool_version, o.created_at, d.source, d.projection,
    d.redactor, r.sealed AS redaction
FROM journal.operations o
JOIN journal.outcomes d
    ON d.workspace_id = $1 AND d.session_id = $2 AND d.thread_id = $3
    AND d.operation_id = o.operation_id AND d.role = 2
LEFT JOIN journal.redactions r
    ON r.workspace_id = $1 AND r.session_id = $2 AND r.thread_id = $3
    AND r.operation_id = o.operation_id
WHERE o.workspace_id = $1 AND o.session_id = $2 AND o.thread_id = $3
  AND (d.projection IS NOT NULL OR r.sealed IS NOT NULL)
  AND o.operation_id = ANY($4::text[]) AND o.kind = 2 AND o.state IN (4, 5, 6)
"""

COPY = """
WITH fence AS (
    INSERT INTO journal.fences AS f (workspace_id, session_id, thread_id, epoch_max, is_deleted)
    VALUES ($1, $2, $3, $4::bigint, FALSE)
    ON CONFLICT (workspace_id, session_id, thread_id) DO UPDATE SET epoch_max = excluded.epoch_max
    WHERE NOT f.is_deleted AND f.epoch_max <= $4
    RETURNING 1
), given AS (
    SELECT given.* FROM fence, unnest($5::text[], $6::smallint[], $7::text[], $8::integer[],
        $9::bigint[], $10::integer[], $11::integer[], $12::smallint[], $13::bytea[], $14::text[],
        $15::timestamptz[], $16::smallint[], $17::bytea[], $18::text[], $19::bytea[])
        AS given(operation_id, state, turn_id, round, attempt_epoch, attempt_number, block_index,
            owner, tool_name, tool_version, created_at, source, projection, redactor, redaction)
), operation AS (
    INSERT INTO journal.operations
        (workspace_id, session_id, thread_id, operation_id, kind, state, turn_id, round,
         attempt_epoch, attempt_number, block_index, owner, tool_name, tool_version, created_at,
         snapshot_id, failure)
    SELECT $1, $2, $3, operation_id, 2, state, turn_id, round, attempt_epoch, attempt_number,
        block_index, owner, tool_name, tool_version, created_at, '', ''
    FROM given
    ON CONFLICT DO NOTHING
), outcome AS (
    INSERT INTO journal.outcomes
        (workspace_id, session_id, thread_id, operation_id, role, source, raw, projection,
         redactor)
    SELECT $1, $2, $3, operation_id, 2, source, NULL, projection, redactor FROM given
    ON CONFLICT DO NOTHING
), redacted AS (
    INSERT INTO journal.redactions (workspace_id, session_id, thread_id, operation_id, sealed)
    SELECT $1, $2, $3, operation_id, redaction FROM given WHERE redaction IS NOT NULL
    ON CONFLICT DO NOTHING
)
SELECT 1 FROM fence
"""

PUT_FENCE = """
INSERT INTO journal.fences (workspace_id, session_id, thread_id, epoch_max, is_deleted)
VALUES ($1, $2, $3, $4, FALSE)
"""

BURY = """
INSERT INTO journal.fences AS f (workspace_id, session_id, thread_id, epoch_max, is_deleted)
VALUES ($1, $2, $3, 9223372036854775807, TRUE)
ON CONFLICT (workspace_id, session_id, thread_id)
DO UPDATE SET epoch_max = excluded.epoch_max, is_deleted = TRUE
"""

# As states.py says for CLOSE; the bodies that a projection would need are erased anyway.
CLOSE_ALL = """
UPDATE journal.operations
SET state = CASE state WHEN 1 THEN 6 WHEN 2 THEN 5 ELSE 4 END
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3 AND state IN (1, 2, 3)
"""

ERASE_OPERATIONS = """
UPDATE journal.operations SET input = NULL, tool_name = ''::bytea, failure = ''
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
  AND (input IS NOT NULL OR tool_name <> ''::bytea OR failure <> '')
"""

ERASE_OUTCOMES = """
UPDATE journal.outcomes SET raw = NULL, projection = NULL
WHERE workspace_id = $1 AND session_id = $2 AND thread_id = $3
  AND (raw IS NOT NULL OR projection IS NOT NULL)
"""

NOTE_ACCESS = """
INSERT INTO journal.access
    (workspace_id, session_id, thread_id, access_id, request_id, reader, purpose, operations)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""

# Null when nobody knows the session.
SESSION_STATE = """
SELECT bool_or(is_deleted) FROM journal.fences WHERE workspace_id = $1 AND session_id = $2
"""

# Of a session, in all its threads; $3 and $4 the thread and the operation before.
PROJECTIONS = """
SELECT thread_id, operation_id, projection FROM journal.outcomes
WHERE workspace_id = $1 AND session_id = $2 AND (thread_id, operation_id) > ($3, $4)
  AND role = 2 AND projection IS NOT NULL
ORDER BY thread_id, operation_id LIMIT $5
"""
