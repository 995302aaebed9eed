"""Tables of sessions, their threads, and the turns on them. The log has `log_schema.py`."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import TIMESTAMP

from foundation.idempotency.table import replays_table
from services.ledger.tables import metadata

_TIME = TIMESTAMP(timezone=True)

sessions = Table(
    "sessions",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("workspace_id", Text, nullable=False),
    # The primary thread.
    Column("thread_id", Text, nullable=False),
    Column("environment_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    # 0 for sessions that were created before it was kept.
    Column("agent_version", BigInteger, nullable=False, server_default="0"),
    # UTF-8: names may hold U+0000, which text cannot.
    Column("agent_name", LargeBinary, nullable=False),
    # Sealed: what clients read (agent, title, metadata), and what turns run with. Null once erased.
    Column("pinned", LargeBinary),
    Column("runtime", LargeBinary),
    # Turns whose input is at `runtime_before_through` or before run with what was pinned earlier,
    # sealed; null for nothing. The revision rises with every update: copies in memory have it.
    Column("runtime_before", LargeBinary),
    Column("runtime_before_through", BigInteger, nullable=False, server_default="0"),
    Column("runtime_revision", BigInteger, nullable=False, server_default="0"),
    # `SessionStatus` of the contract; changes with the status event in one transaction.
    Column("status", SmallInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cache_read_tokens", BigInteger, nullable=False),
    Column("cache_creation_tokens", BigInteger, nullable=False),
    # Those of `cache_creation_tokens` that were written for an hour.
    Column("cache_creation_1h_tokens", BigInteger, nullable=False, server_default="0"),
    Column("web_searches", BigInteger, nullable=False, server_default="0"),
    Column("web_fetches", BigInteger, nullable=False, server_default="0"),
    # Time in which a thread ran, without the span that began at `running_since`.
    Column("active_ms", BigInteger, nullable=False),
    Column("running_since", _TIME),
    # Rises with every write of a lane: whoever decided on a copy of it stores nothing when the
    # session moved meanwhile.
    Column("revision", BigInteger, nullable=False, server_default="0"),
    # Head of the log: see `log_writer.LogHead`.
    Column("log_position", BigInteger, nullable=False),
    Column("log_digest", LargeBinary, nullable=False),
    Column("last_processed_at", _TIME),
    Column("created_at", _TIME, nullable=False),
    Column("updated_at", _TIME, nullable=False),
    Column("archived_at", _TIME),
    Column("deleted_at", _TIME),
    # A deleted session is handed to a runner, again and again, until every authority erased it.
    Column("erasure_offered_at", _TIME),
    Column("erased_at", _TIME),
)

Index(
    "sessions_to_erase",
    sessions.c.deleted_at,
    postgresql_where=text("deleted_at IS NOT NULL AND erased_at IS NULL"),
)

# Lists of a workspace's sessions, by creation time.
Index(
    "sessions_created",
    sessions.c.workspace_id,
    sessions.c.created_at,
    sessions.c.session_id,
    postgresql_where=text("deleted_at IS NULL"),
)

threads = Table(
    "threads",
    metadata,
    Column("thread_id", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("workspace_id", Text, nullable=False),
    # Rises with every claim and never falls; the maximum of bigint after a deletion.
    Column("epoch", BigInteger, nullable=False),
    Column("deleted", Boolean, nullable=False),
    # Stream that holds the lease, and until when (by the database's clock) it holds it.
    Column("lease_stream", Text),
    Column("lease_expires_at", _TIME),
    # How the last claim ended: `lane.Ended`.
    Column("ended", SmallInteger, nullable=False),
    # Latest recorded transcript head.
    Column("head_seq", BigInteger, nullable=False),
    Column("head_digest", LargeBinary, nullable=False),
    # Since when, or from when on, the thread has something to claim; null for nothing.
    Column("claimable_at", _TIME),
    Column("created_at", _TIME, nullable=False),
)

Index("threads_session", threads.c.session_id)
Index(
    "threads_claimable",
    threads.c.claimable_at,
    postgresql_where=text("claimable_at IS NOT NULL AND lease_stream IS NULL"),
)
Index(
    "threads_leased",
    threads.c.lease_stream,
    postgresql_where=text("lease_stream IS NOT NULL"),
)

turns = Table(
    "turns",
    metadata,
    Column("turn_id", Text, primary_key=True),
    Column("workspace_id", Text, nullable=False),
    Column("session_id", Text, nullable=False),
    Column("thread_id", Text, nullable=False),
    # Log position of the queued input: the order of turns. 0 for the turn of a fork, which has no
    # input and copies the history that the session begins with.
    Column("input_position", BigInteger, nullable=False),
    # `TurnState` of the contract.
    Column("state", SmallInteger, nullable=False),
    Column("input_event_id", Text, nullable=False),
    Column("system_event_id", Text),
    Column("system_position", BigInteger),
    # The input was frozen and marked, at the first claim.
    Column("marked", Boolean, nullable=False),
    Column("interrupted", Boolean, nullable=False),
    # The interrupt that waits for its mark.
    Column("interrupt_event_id", Text),
    Column("interrupt_position", BigInteger),
    # Public stop reason of a turn that is publicly over and not settled yet; 0 before.
    Column("stop_reason", SmallInteger, nullable=False),
    # Newest published round; -1 before the first.
    Column("round", Integer, nullable=False),
    # That round has calls, and its results entry was not recorded yet.
    Column("round_open", Boolean, nullable=False),
    # Newest attempt that was begun, and its span.
    Column("attempt_round", Integer, nullable=False),
    Column("attempt_epoch", BigInteger, nullable=False),
    Column("attempt_number", Integer, nullable=False),
    Column("span_event_id", Text),
    Column("span_open", Boolean, nullable=False),
    # Epoch whose commit of the newest round was answered `continue`; 0 for none.
    Column("continued_epoch", BigInteger, nullable=False),
    # Lost claims since the last answer or results entry.
    Column("takeovers", Integer, nullable=False),
    Column("not_before", _TIME),
    # Rescheduled commits since the newest answer or results entry.
    Column("retries", Integer, nullable=False, server_default="0"),
    # An operator asked for one more attempt to settle.
    Column("released", Boolean, nullable=False),
    # Trace of the call that made the turn claimable; empty for none.
    Column("traceparent", Text, nullable=False, server_default=""),
)

# The turns of a thread that are not over, oldest first (6 is TURN_STATE_DONE).
Index(
    "turns_open",
    turns.c.thread_id,
    turns.c.input_position,
    postgresql_where=text("state <> 6"),
)

rounds = Table(
    "rounds",
    metadata,
    Column("turn_id", Text, primary_key=True),
    Column("round", Integer, primary_key=True, autoincrement=False),
    Column("workspace_id", Text, nullable=False),
    Column("session_id", Text, nullable=False),
    Column("answer_entry_id", Text, nullable=False),
    Column("answer_digest", LargeBinary, nullable=False),
    Column("attempt_epoch", BigInteger, nullable=False),
    Column("attempt_number", Integer, nullable=False),
)
Index("rounds_session", rounds.c.session_id)

calls = Table(
    "calls",
    metadata,
    Column("turn_id", Text, primary_key=True),
    Column("round", Integer, primary_key=True, autoincrement=False),
    # Place in use order, from 0.
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("workspace_id", Text, nullable=False),
    Column("session_id", Text, nullable=False),
    Column("block_index", Integer, nullable=False),
    Column("use_event_id", Text, nullable=False),
    Column("operation_id", Text, nullable=False),
    # `ToolOwner` and `ToolPolicy` of the contract.
    Column("owner", SmallInteger, nullable=False),
    Column("policy", SmallInteger, nullable=False),
    # UTF-8: models invent names that hold U+0000.
    Column("name", LargeBinary, nullable=False),
    # `CallState` of the contract.
    Column("state", SmallInteger, nullable=False),
    # `lane.Answer`, and the log point of the answer or the closure.
    Column("answer", SmallInteger, nullable=False),
    Column("answer_event_id", Text),
    Column("answer_position", BigInteger),
    Column("answer_digest", LargeBinary),
    # A confirmation waits for its mark until its turn resumes or the call is closed.
    Column("answer_marked", Boolean, nullable=False),
    # The public result: `lane.Source`, id and position.
    Column("result_source", SmallInteger, nullable=False),
    Column("result_event_id", Text),
    Column("result_position", BigInteger),
    # The `system.message` that came with the answer; it waits for its mark like a confirmation.
    Column("system_event_id", Text),
    Column("system_position", BigInteger),
    Column("system_marked", Boolean, nullable=False),
)
Index("calls_session", calls.c.session_id)

# Transcript entries that the ledger has seen, without gaps.
entries = Table(
    "entries",
    metadata,
    Column("thread_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("workspace_id", Text, nullable=False),
    Column("session_id", Text, nullable=False),
    Column("turn_id", Text, nullable=False),
    Column("entry_id", Text, nullable=False),
    # `EntryKind` of the contract.
    Column("kind", SmallInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
)
Index("entries_session", entries.c.session_id)

# Final answers to commits, for repeats.
commits = Table(
    "commits",
    metadata,
    Column("turn_id", Text, primary_key=True),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("round", Integer, primary_key=True, autoincrement=False),
    # `CommitKind` and `CommitAnswer` of the contract.
    Column("kind", SmallInteger, primary_key=True, autoincrement=False),
    Column("workspace_id", Text, nullable=False),
    Column("session_id", Text, nullable=False),
    Column("answer", SmallInteger, nullable=False),
)
Index("commits_session", commits.c.session_id)

# Sessions whose history was or will be copied from another one's, by their first turn.
forks = Table(
    "forks",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("workspace_id", Text, nullable=False),
    Column("turn_id", Text, nullable=False),
    # The thread that is read, and its transcript's head at the cut.
    Column("source_session_id", Text, nullable=False),
    Column("source_thread_id", Text, nullable=False),
    Column("cut_seq", BigInteger, nullable=False),
    Column("cut_digest", LargeBinary, nullable=False),
)
Index("forks_source", forks.c.source_session_id)

replays = replays_table(metadata)
