"""SQL that stores what was decided on a lane: one statement, which stores nothing when the session
moved since the lane was read.

The statement is put together from the sections that the write needs, so that an ordinary one is
short; there are few combinations, and each is prepared once per connection.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from itertools import chain
from operator import attrgetter
from typing import Any

from services.ledger.lane import Call, Commit, Entry, Round, Session, Thread, Turn
from services.ledger.log_row import KIND_MARK, KIND_QUEUED, LogHead, Row

# `$1` workspace, `$2` session, `$3` thread. `$4` to `$8` are what the decision was made on;
# `$25` renews the lease for `$26` milliseconds, by the database's clock.
_SESSION = """
WITH guard AS (
    SELECT 1 FROM ledger.sessions s JOIN ledger.threads t ON t.thread_id = s.thread_id
    WHERE s.workspace_id = $1 AND s.session_id = $2 AND t.thread_id = $3 AND s.revision = $4
        AND t.epoch = $5 AND t.lease_stream IS NOT DISTINCT FROM $6 AND t.ended = $7
        AND t.claimable_at IS NOT DISTINCT FROM $8
    FOR UPDATE OF s, t
), session AS (
    UPDATE ledger.sessions SET
        revision = $28, status = $9, input_tokens = $10, output_tokens = $11,
        cache_read_tokens = $12, cache_creation_tokens = $13, active_ms = $14, running_since = $15,
        log_position = $16, log_digest = $17, last_processed_at = $18, updated_at = $19,
        cache_creation_1h_tokens = $29, web_searches = $30, web_fetches = $31
    FROM guard WHERE workspace_id = $1 AND session_id = $2
), thread AS (
    UPDATE ledger.threads SET
        epoch = $20, lease_stream = $21, ended = $22, head_seq = $23, head_digest = $24,
        claimable_at = $27,
        lease_expires_at = CASE
            WHEN $25 THEN clock_timestamp() + $26 * interval '1 millisecond'
            ELSE lease_expires_at
        END
    FROM guard WHERE workspace_id = $1 AND thread_id = $3
)"""
_LAST = "\nSELECT ${last}::integer AS call FROM guard"
_FIXED = 31


@dataclass(frozen=True)
class _Section:
    """A table that gets rows. Its statement takes them as array parameters; one row, which is the
    common case, as plain ones: those cost both sides less."""

    name: str
    sql: str
    columns: tuple[tuple[str, str], ...]

    def rendered(self, first: int, is_single: bool) -> str:
        """The section with its parameters numbered from `first`."""
        numbered = [(first + place, kind) for place, (_, kind) in enumerate(self.columns)]
        values, source = "given.*", "FROM guard"
        if is_single:
            values = ", ".join(f"${number}::{kind}" for number, kind in numbered)
        else:
            arrays = ", ".join(f"${number}::{kind}[]" for number, kind in numbered)
            source = f"FROM guard, unnest({arrays}) AS given"
        return self.sql.format(values=values, source=source, first=first)

    def values(self, rows: Sequence[object]) -> Sequence[Any]:
        """The parameters."""
        if len(rows) == 1:
            return self._read(rows[0])
        return list(zip(*map(self._read, rows), strict=True))

    @cached_property
    def _read(self) -> Callable[[object], tuple[Any, ...]]:
        names = [name for name, _ in self.columns]
        read = attrgetter(*names)
        return read if len(names) > 1 else lambda row: (read(row),)


def _given(columns: str) -> tuple[tuple[str, str], ...]:
    pairs = (part.split(" ") for part in columns.split(", "))
    return tuple((name, kind) for name, kind in pairs)


_TURNS = _Section(
    "turns",
    """, turn AS (
    INSERT INTO ledger.turns (workspace_id, session_id, thread_id, turn_id, input_position,
        input_event_id, state, system_event_id, system_position, marked, interrupted,
        interrupt_event_id, interrupt_position, stop_reason, round, round_open, attempt_round,
        attempt_epoch, attempt_number, span_event_id, span_open, continued_epoch, takeovers,
        not_before, released, traceparent, retries)
    SELECT $1, $2, $3, {values} {source}
    ON CONFLICT (turn_id) DO UPDATE SET
        state = excluded.state, system_event_id = excluded.system_event_id,
        system_position = excluded.system_position, marked = excluded.marked,
        interrupted = excluded.interrupted, interrupt_event_id = excluded.interrupt_event_id,
        interrupt_position = excluded.interrupt_position, stop_reason = excluded.stop_reason,
        round = excluded.round, round_open = excluded.round_open,
        attempt_round = excluded.attempt_round, attempt_epoch = excluded.attempt_epoch,
        attempt_number = excluded.attempt_number, span_event_id = excluded.span_event_id,
        span_open = excluded.span_open, continued_epoch = excluded.continued_epoch,
        takeovers = excluded.takeovers, not_before = excluded.not_before,
        released = excluded.released, traceparent = excluded.traceparent,
        retries = excluded.retries
)""",
    _given(
        "turn_id text, input_position bigint, input_event_id text, state smallint, "
        "system_event_id text, system_position bigint, marked bool, interrupted bool, "
        "interrupt_event_id text, interrupt_position bigint, stop_reason smallint, round int, "
        "round_open bool, attempt_round int, attempt_epoch bigint, attempt_number int, "
        "span_event_id text, span_open bool, continued_epoch bigint, takeovers int, "
        "not_before timestamptz, released bool, traceparent text, retries int"
    ),
)
_CALLS = _Section(
    "calls",
    """, call AS (
    INSERT INTO ledger.calls (workspace_id, session_id, turn_id, round, place, block_index,
        use_event_id, operation_id, owner, policy, name, state, answer, answer_event_id,
        answer_position, answer_digest, answer_marked, result_source, result_event_id,
        result_position, system_event_id, system_position, system_marked)
    SELECT $1, $2, {values} {source}
    ON CONFLICT (turn_id, round, place) DO UPDATE SET
        state = excluded.state, answer = excluded.answer,
        answer_event_id = excluded.answer_event_id, answer_position = excluded.answer_position,
        answer_digest = excluded.answer_digest, answer_marked = excluded.answer_marked,
        result_source = excluded.result_source, result_event_id = excluded.result_event_id,
        result_position = excluded.result_position, system_event_id = excluded.system_event_id,
        system_position = excluded.system_position, system_marked = excluded.system_marked
)""",
    _given(
        "turn_id text, round int, place int, block_index int, use_event_id text, "
        "operation_id text, owner smallint, policy smallint, name_utf8 bytea, state smallint, "
        "answer smallint, answer_event_id text, answer_position bigint, answer_digest bytea, "
        "answer_marked bool, result_source smallint, result_event_id text, "
        "result_position bigint, system_event_id text, system_position bigint, system_marked bool"
    ),
)
_ROUNDS = _Section(
    "rounds",
    """, round AS (
    INSERT INTO ledger.rounds (workspace_id, session_id, turn_id, round, answer_entry_id,
        answer_digest, attempt_epoch, attempt_number)
    SELECT $1, $2, {values} {source}
)""",
    _given(
        "turn_id text, round int, answer_entry_id text, answer_digest bytea, "
        "attempt_epoch bigint, attempt_number int"
    ),
)
_ENTRIES = _Section(
    "entries",
    """, entry AS (
    INSERT INTO ledger.entries (workspace_id, session_id, thread_id, turn_id, seq, entry_id, kind,
        digest)
    SELECT $1, $2, $3, {values} {source}
)""",
    _given("turn_id text, seq bigint, entry_id text, kind smallint, digest bytea"),
)
_COMMITS = _Section(
    "commits",
    """, commit AS (
    INSERT INTO ledger.commits (workspace_id, session_id, turn_id, epoch, round, kind, answer)
    SELECT $1, $2, {values} {source}
)""",
    _given("turn_id text, epoch bigint, round int, kind smallint, answer smallint"),
)
_LOG = _Section(
    "rows",
    """, log AS (
    INSERT INTO ledger.log (workspace_id, session_id, position, kind, event_id, event_type,
        processed_at, refers_position, sealed, commitment, digest, transcript_seq,
        transcript_digest)
    SELECT $1, $2, {values} {source}
)""",
    _given(
        "position bigint, kind smallint, event_id text, event_type text, "
        "processed_at timestamptz, refers_position bigint, sealed bytea, commitment bytea, "
        "digest bytea, transcript_seq bigint, transcript_digest bytea"
    ),
)
# Entries that stay queued, and those that are queued no longer.
_STAY = _Section(
    "stay",
    """, stay AS (
    INSERT INTO ledger.queued (workspace_id, session_id, position)
    SELECT $1, $2, {values} {source}
)""",
    _given("position bigint"),
)
_LEAVE = _Section(
    "leave",
    """, leave AS (
    DELETE FROM ledger.queued USING (SELECT {values} {source}) AS gone (position)
    WHERE workspace_id = $1 AND session_id = $2 AND queued.position = gone.position
)""",
    _given("position bigint"),
)
_SECTIONS = (_TURNS, _CALLS, _ROUNDS, _ENTRIES, _COMMITS, _LOG, _STAY, _LEAVE)


@dataclass(frozen=True, slots=True)
class _Position:
    position: int | None


@dataclass(slots=True)
class LaneWrite:
    """What one statement stores: a session and its thread as they are now, and the rows that
    changed or are new. `revision` and `before` are what the decisions were made on."""

    revision: int
    revision_after: int
    before: Thread
    session: Session
    thread: Thread
    head: LogHead
    now: datetime
    lease_taken: bool
    lease_ms: int
    turns: Sequence[Turn] = ()
    calls: Sequence[Call] = ()
    rounds: Sequence[Round] = ()
    entries: Sequence[Entry] = ()
    commits: Sequence[Commit] = ()
    rows: Sequence[Row] = ()
    stay: Sequence[_Position] = field(init=False)
    leave: Sequence[_Position] = field(init=False)

    def __post_init__(self) -> None:
        """Find what the queue's index gains and loses."""
        queued = {row.position for row in self.rows if row.kind == KIND_QUEUED}
        marked = {row.refers_position for row in self.rows if row.kind == KIND_MARK}
        self.stay = [_Position(one) for one in sorted(queued - marked)]
        self.leave = [_Position(one) for one in marked - queued]

    def statement(self) -> tuple[str, list[Any]]:
        """The statement, which returns a row if it stored everything, and its parameters but the
        last, which that row holds as `call`."""
        given = [(one, rows) for one in _SECTIONS if (rows := getattr(self, one.name))]
        values = (one.values(rows) for one, rows in given)
        sql = sql_of(tuple((one.name, len(rows) == 1) for one, rows in given))
        return sql, [*self._fixed(), *chain(*values)]

    def _fixed(self) -> list[Any]:
        session, thread, before, head = self.session, self.thread, self.before, self.head
        return [
            session.workspace_id,
            session.session_id,
            session.thread_id,
            self.revision,
            before.epoch,
            before.lease_stream,
            before.ended,
            before.claimable_at,
            session.status,
            session.input_tokens,
            session.output_tokens,
            session.cache_read_tokens,
            session.cache_creation_tokens,
            session.active_ms,
            session.running_since,
            head.position,
            head.digest,
            head.last_processed_at,
            self.now,
            thread.epoch,
            thread.lease_stream,
            thread.ended,
            thread.head_seq,
            thread.head_digest,
            self.lease_taken,
            self.lease_ms,
            thread.claimable_at,
            self.revision_after,
            session.cache_creation_1h_tokens,
            session.web_searches,
            session.web_fetches,
        ]


@cache
def sql_of(sections: tuple[tuple[str, bool], ...]) -> str:
    """The statement with these sections, in the order of the tables here, each with whether it
    takes a single row."""
    single = dict(sections)
    parts, first = [_SESSION], _FIXED + 1
    for section in _SECTIONS:
        if section.name in single:
            parts.append(section.rendered(first, single[section.name]))
            first += len(section.columns)
    return "".join((*parts, _LAST.format(last=first)))


SECTIONS = tuple(section.name for section in _SECTIONS)
"""Names of all sections."""
