"""SQL that stores what was decided on a lane: one statement, which stores nothing when the session
moved since the lane was read.

The statement is put together from the sections that the write needs, so that an ordinary one is
short; there are few combinations, and each is prepared once per connection.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Struct

from services.ledger.lane import Call, Commit, Entry, Round, Session, Thread, Turn
from services.ledger.log_row import KIND_MARK, KIND_QUEUED, LogHead, Row

# `$1` workspace, `$2` session, `$3` thread. `$4` to `$8` are what the decision was made on.
_SESSION = """
WITH guard AS (
    SELECT 1 FROM ledger.sessions s JOIN ledger.threads t ON t.thread_id = s.thread_id
    WHERE s.workspace_id = $1 AND s.session_id = $2 AND t.thread_id = $3 AND s.revision = $4
        AND t.epoch = $5 AND t.lease_stream IS NOT DISTINCT FROM $6 AND t.ended = $7
        AND t.claimable_at IS NOT DISTINCT FROM $8
    FOR UPDATE OF s, t
), session AS (
    UPDATE ledger.sessions SET
        revision = $9, status = $10, input_tokens = $11, output_tokens = $12,
        cache_read_tokens = $13, cache_creation_tokens = $14, cache_creation_1h_tokens = $15,
        web_searches = $16, web_fetches = $17, active_ms = $18, running_since = $19,
        log_position = $20, log_digest = $21, last_processed_at = $22, updated_at = $23
    FROM guard WHERE workspace_id = $1 AND session_id = $2
)"""
_LAST = "\nSELECT ${last}::integer AS call FROM guard"
_FIXED = 23


@dataclass(frozen=True)
class _Section:
    """A table that gets rows. Its statement takes them as array parameters; a few rows, as most
    writes have, as plain ones: those cost both sides half. `{values}` and `{source}` stand for a
    query's columns and their source.

    Each number of plain rows is a statement of its own, which every connection keeps: only the log,
    of which an ordinary write has several rows, has more than one."""

    name: str
    sql: str
    columns: tuple[tuple[str, str], ...]
    plain_max: int = 1

    def rendered(self, first: int, plain: int) -> str:
        """The section for so many plain rows, or with 0 for arrays, with its parameters numbered
        from `first`."""
        kinds = [kind for _, kind in self.columns]
        if plain == 1:
            return self.sql.format(values=_numbered(first, kinds), source="FROM guard")
        if plain:
            starts = range(first, first + self.parameters(plain), len(kinds))
            rows = ", ".join(f"({_numbered(start, kinds)})" for start in starts)
            source = f"(VALUES {rows})"
        else:
            source = f"unnest({_numbered(first, [f'{kind}[]' for kind in kinds])})"
        return self.sql.format(values="given.*", source=f"FROM guard, {source} AS given")

    def parameters(self, plain: int) -> int:
        """How many parameters the section has."""
        return len(self.columns) * (plain or 1)

    def values(self, rows: Collection[object]) -> Sequence[Any]:
        """The parameters."""
        read = map(self._read, rows)
        return list(chain.from_iterable(read) if self.plain(rows) else zip(*read, strict=True))

    def plain(self, rows: Collection[object]) -> int:
        """How many rows are given as plain parameters: all, or none."""
        return len(rows) if len(rows) <= self.plain_max else 0

    @cached_property
    def _read(self) -> Callable[[object], tuple[Any, ...]]:
        names = [name for name, _ in self.columns]
        read = attrgetter(*names)
        return read if len(names) > 1 else lambda row: (read(row),)


def _numbered(first: int, kinds: Sequence[str]) -> str:
    return ", ".join(f"${first + place}::{kind}" for place, kind in enumerate(kinds))


def _given(columns: str) -> tuple[tuple[str, str], ...]:
    pairs = (part.split(" ") for part in columns.split(", "))
    return tuple((name, kind) for name, kind in pairs)


# The lease is renewed by the database's clock.
_THREAD = _Section(
    "threads",
    """, thread AS (
    UPDATE ledger.threads SET
        epoch = given.epoch, lease_stream = given.lease_stream, ended = given.ended,
        head_seq = given.head_seq, head_digest = given.head_digest,
        claimable_at = given.claimable_at,
        lease_expires_at = CASE
            WHEN given.lease_ms IS NULL THEN threads.lease_expires_at
            ELSE clock_timestamp() + given.lease_ms * interval '1 millisecond'
        END
    FROM (SELECT {values} {source}) AS given (epoch, lease_stream, ended, head_seq, head_digest,
        claimable_at, lease_ms)
    WHERE workspace_id = $1 AND thread_id = $3
)""",
    _given(
        "epoch bigint, lease_stream text, ended smallint, head_seq bigint, head_digest bytea, "
        "claimable_at timestamptz, lease_ms int"
    ),
)
_TURN_COLUMNS = _given(
    "turn_id text, input_position bigint, input_event_id text, state smallint, "
    "system_event_id text, system_position bigint, marked bool, interrupted bool, "
    "interrupt_event_id text, interrupt_position bigint, stop_reason smallint, round int, "
    "round_open bool, attempt_round int, attempt_epoch bigint, attempt_number int, "
    "span_event_id text, span_open bool, continued_epoch bigint, takeovers int, "
    "not_before timestamptz, released bool, traceparent text, retries int"
)
_INSERT_TURNS = """
    INSERT INTO ledger.turns (workspace_id, session_id, thread_id, turn_id, input_position,
        input_event_id, state, system_event_id, system_position, marked, interrupted,
        interrupt_event_id, interrupt_position, stop_reason, round, round_open, attempt_round,
        attempt_epoch, attempt_number, span_event_id, span_open, continued_epoch, takeovers,
        not_before, released, traceparent, retries)
    SELECT $1, $2, $3, {values} {source}"""
_NEW_TURNS = _Section(
    "new_turns",
    f""", new_turn AS ({_INSERT_TURNS}
)""",
    _TURN_COLUMNS,
)
_TURNS = _Section(
    "turns",
    f""", turn AS ({_INSERT_TURNS}
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
    _TURN_COLUMNS,
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
    plain_max=6,
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
_SECTIONS = (
    _THREAD,
    _NEW_TURNS,
    _TURNS,
    _CALLS,
    _ROUNDS,
    _ENTRIES,
    _COMMITS,
    _LOG,
    _STAY,
    _LEAVE,
)


class _Position(NamedTuple):
    position: int | None


class _ThreadRow(NamedTuple):
    epoch: int
    lease_stream: str | None
    ended: int
    head_seq: int
    head_digest: bytes
    claimable_at: datetime | None
    lease_ms: int | None


class LaneWrite(Struct):
    """What one statement stores: a session and its thread as they are now, and the rows that
    changed or are new. `revision` and `before` are what the decisions were made on; a taken lease
    holds `lease_ms`."""

    revision: int
    revision_after: int
    before: Thread
    session: Session
    thread: Thread
    head: LogHead
    now: datetime
    lease_ms: int | None
    new_turns: Collection[Turn] = ()
    turns: Collection[Turn] = ()
    calls: Collection[Call] = ()
    rounds: Sequence[Round] = ()
    entries: Sequence[Entry] = ()
    commits: Sequence[Commit] = ()
    rows: Sequence[Row] = ()

    def statement(self) -> tuple[str, list[Any]]:
        """The statement, which returns a row if it stored everything, and its parameters but the
        last, which that row holds as `call`."""
        values = self._fixed()
        used: list[tuple[str, int]] = []
        for section, rows in zip(_SECTIONS, self._rows(), strict=True):
            if rows:
                used.append((section.name, section.plain(rows)))
                values += section.values(rows)
        return sql_of(tuple(used)), values

    def _rows(self) -> tuple[Collection[object], ...]:
        """What each section stores."""
        stay, leave = _queue(self.rows)
        return (
            self._thread(),
            self.new_turns,
            self.turns,
            self.calls,
            self.rounds,
            self.entries,
            self.commits,
            self.rows,
            stay,
            leave,
        )

    def _thread(self) -> tuple[_ThreadRow, ...]:
        thread = self.thread
        if self.lease_ms is None and thread == self.before:
            return ()
        row = _ThreadRow(
            thread.epoch,
            thread.lease_stream,
            thread.ended,
            thread.head_seq,
            thread.head_digest,
            thread.claimable_at,
            self.lease_ms,
        )
        return (row,)

    def _fixed(self) -> list[Any]:
        session, before, head = self.session, self.before, self.head
        return [
            session.workspace_id,
            session.session_id,
            session.thread_id,
            self.revision,
            before.epoch,
            before.lease_stream,
            before.ended,
            before.claimable_at,
            self.revision_after,
            session.status,
            session.input_tokens,
            session.output_tokens,
            session.cache_read_tokens,
            session.cache_creation_tokens,
            session.cache_creation_1h_tokens,
            session.web_searches,
            session.web_fetches,
            session.active_ms,
            session.running_since,
            head.position,
            head.digest,
            head.last_processed_at,
            self.now,
        ]


def _queue(rows: Sequence[Row]) -> tuple[list[_Position], list[_Position]]:
    """What the queue's index gains and loses by new rows of the log."""
    if len(rows) == 1:  # nothing is queued and marked in one row
        row = rows[0]
        stay = [_Position(row.position)] if row.kind == KIND_QUEUED else []
        return stay, [_Position(row.refers_position)] if row.kind == KIND_MARK else []
    queued = {row.position for row in rows if row.kind == KIND_QUEUED}
    marked = {row.refers_position for row in rows if row.kind == KIND_MARK}
    stay = [_Position(one) for one in sorted(queued - marked)]
    return stay, [_Position(one) for one in marked - queued]


@cache
def sql_of(sections: tuple[tuple[str, int], ...]) -> str:
    """The statement with these sections, in the order of the tables here, each with the number of
    its plain rows, or 0 for arrays."""
    plain = dict(sections)
    parts, first = [_SESSION], _FIXED + 1
    for section in _SECTIONS:
        if section.name in plain:
            parts.append(section.rendered(first, plain[section.name]))
            first += section.parameters(plain[section.name])
    return "".join((*parts, _LAST.format(last=first)))


SECTIONS = tuple(section.name for section in _SECTIONS)
"""Names of all sections."""
