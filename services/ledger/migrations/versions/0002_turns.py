"""Sessions, threads and turns."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TIMESTAMP

revision = "0002_turns"
down_revision = "0001_log"


def _key(name: str, type_: type[sa.types.TypeEngine[Any]] = sa.Text) -> sa.Column[Any]:
    return sa.Column(name, type_, primary_key=True, autoincrement=False)


def _filled(name: str, type_: type[sa.types.TypeEngine[Any]] = sa.Text) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=False)


def _time(name: str, *, nullable: bool = True) -> sa.Column[Any]:
    return sa.Column(name, TIMESTAMP(timezone=True), nullable=nullable)


def _owner() -> list[sa.Column[Any]]:
    return [_filled("workspace_id"), _filled("session_id")]


def upgrade() -> None:
    """Create what a turn needs."""
    _sessions()
    _threads()
    _turns()
    _records()


def _sessions() -> None:
    op.create_table(
        "sessions",
        _key("session_id"),
        _filled("workspace_id"),
        _filled("thread_id"),
        _filled("environment_id"),
        _filled("agent_id"),
        _filled("agent_name", sa.LargeBinary),
        sa.Column("pinned", sa.LargeBinary),
        sa.Column("runtime", sa.LargeBinary),
        _filled("status", sa.SmallInteger),
        _filled("input_tokens", sa.BigInteger),
        _filled("output_tokens", sa.BigInteger),
        _filled("cache_read_tokens", sa.BigInteger),
        _filled("cache_creation_tokens", sa.BigInteger),
        _filled("active_ms", sa.BigInteger),
        _time("running_since"),
        _filled("log_position", sa.BigInteger),
        _filled("log_digest", sa.LargeBinary),
        _time("last_processed_at"),
        _time("created_at", nullable=False),
        _time("updated_at", nullable=False),
        _time("archived_at"),
        _time("deleted_at"),
        _time("erasure_offered_at"),
        _time("erased_at"),
        schema="ledger",
    )
    op.create_index(
        "sessions_to_erase",
        "sessions",
        ["deleted_at"],
        schema="ledger",
        postgresql_where=sa.text("deleted_at IS NOT NULL AND erased_at IS NULL"),
    )


def _threads() -> None:
    op.create_table(
        "threads",
        _key("thread_id"),
        _filled("session_id"),
        _filled("workspace_id"),
        _filled("epoch", sa.BigInteger),
        _filled("deleted", sa.Boolean),
        sa.Column("lease_stream", sa.Text),
        _time("lease_expires_at"),
        _filled("ended", sa.SmallInteger),
        _filled("head_seq", sa.BigInteger),
        _filled("head_digest", sa.LargeBinary),
        _time("claimable_at"),
        _time("created_at", nullable=False),
        schema="ledger",
    )
    op.create_index("threads_session", "threads", ["session_id"], schema="ledger")
    op.create_index(
        "threads_claimable",
        "threads",
        ["claimable_at"],
        schema="ledger",
        postgresql_where=sa.text("claimable_at IS NOT NULL AND lease_stream IS NULL"),
    )
    op.create_index(
        "threads_leased",
        "threads",
        ["lease_stream"],
        schema="ledger",
        postgresql_where=sa.text("lease_stream IS NOT NULL"),
    )


def _turns() -> None:
    op.create_table(
        "turns",
        _key("turn_id"),
        *_owner(),
        _filled("thread_id"),
        _filled("input_position", sa.BigInteger),
        _filled("state", sa.SmallInteger),
        _filled("input_event_id"),
        sa.Column("system_event_id", sa.Text),
        sa.Column("system_position", sa.BigInteger),
        _filled("marked", sa.Boolean),
        _filled("interrupted", sa.Boolean),
        sa.Column("interrupt_event_id", sa.Text),
        sa.Column("interrupt_position", sa.BigInteger),
        _filled("stop_reason", sa.SmallInteger),
        _filled("round", sa.Integer),
        _filled("round_open", sa.Boolean),
        _filled("attempt_round", sa.Integer),
        _filled("attempt_epoch", sa.BigInteger),
        _filled("attempt_number", sa.Integer),
        sa.Column("span_event_id", sa.Text),
        _filled("span_open", sa.Boolean),
        _filled("continued_epoch", sa.BigInteger),
        _filled("takeovers", sa.Integer),
        _time("not_before"),
        _filled("released", sa.Boolean),
        schema="ledger",
    )
    op.create_index(
        "turns_open",
        "turns",
        ["thread_id", "input_position"],
        schema="ledger",
        postgresql_where=sa.text("state <> 6"),
    )


def _records() -> None:
    op.create_table(
        "rounds",
        _key("turn_id"),
        _key("round", sa.Integer),
        *_owner(),
        _filled("answer_entry_id"),
        _filled("answer_digest", sa.LargeBinary),
        _filled("attempt_epoch", sa.BigInteger),
        _filled("attempt_number", sa.Integer),
        schema="ledger",
    )
    op.create_table(
        "calls",
        _key("turn_id"),
        _key("round", sa.Integer),
        _key("place", sa.Integer),
        *_owner(),
        _filled("block_index", sa.Integer),
        _filled("use_event_id"),
        _filled("operation_id"),
        _filled("owner", sa.SmallInteger),
        _filled("policy", sa.SmallInteger),
        _filled("name", sa.LargeBinary),
        _filled("state", sa.SmallInteger),
        _filled("answer", sa.SmallInteger),
        sa.Column("answer_event_id", sa.Text),
        sa.Column("answer_position", sa.BigInteger),
        sa.Column("answer_digest", sa.LargeBinary),
        _filled("answer_marked", sa.Boolean),
        _filled("result_source", sa.SmallInteger),
        sa.Column("result_event_id", sa.Text),
        sa.Column("result_position", sa.BigInteger),
        sa.Column("system_event_id", sa.Text),
        sa.Column("system_position", sa.BigInteger),
        _filled("system_marked", sa.Boolean),
        schema="ledger",
    )
    op.create_table(
        "entries",
        _key("thread_id"),
        _key("seq", sa.BigInteger),
        *_owner(),
        _filled("turn_id"),
        _filled("entry_id"),
        _filled("kind", sa.SmallInteger),
        _filled("digest", sa.LargeBinary),
        schema="ledger",
    )
    op.create_table(
        "commits",
        _key("turn_id"),
        _key("epoch", sa.BigInteger),
        _key("round", sa.Integer),
        _key("kind", sa.SmallInteger),
        *_owner(),
        _filled("answer", sa.SmallInteger),
        schema="ledger",
    )
    for table in ("rounds", "calls", "entries", "commits"):
        op.create_index(f"{table}_session", table, ["session_id"], schema="ledger")
