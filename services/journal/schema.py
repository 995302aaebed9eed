"""Tables of the journal."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TIMESTAMP

metadata = sa.MetaData(schema="journal")

_NOW = sa.text("now()")


def _thread() -> list[sa.Column[str]]:
    """The key of a thread, in every key whole, so that a foreign part finds nothing."""
    return [
        sa.Column(name, sa.Text, primary_key=True)
        for name in ("workspace_id", "session_id", "thread_id")
    ]


fences = sa.Table(
    "fences",
    metadata,
    *_thread(),
    sa.Column("epoch_max", sa.BigInteger, nullable=False),
    sa.Column("is_deleted", sa.Boolean, nullable=False),
)

operations = sa.Table(
    "operations",
    metadata,
    *_thread(),
    sa.Column("operation_id", sa.Text, primary_key=True),
    sa.Column("kind", sa.SmallInteger, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("turn_id", sa.Text, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("attempt_epoch", sa.BigInteger, nullable=False),
    sa.Column("attempt_number", sa.Integer, nullable=False),
    # -1 for provider calls, and where an operation was closed or answered before it was prepared.
    sa.Column("block_index", sa.Integer, nullable=False),
    sa.Column("owner", sa.SmallInteger, nullable=False),
    # UTF-8: models invent names that hold U+0000, which text cannot.
    sa.Column("tool_name", sa.LargeBinary, nullable=False),
    sa.Column("tool_version", sa.Text, nullable=False),
    # Sealed exact JSON; null where it never came, or is erased.
    sa.Column("input", sa.LargeBinary),
    # Digest of the starter's nonce, which itself is never stored.
    sa.Column("nonce_digest", sa.LargeBinary),
    sa.Column("started_at", TIMESTAMP(timezone=True)),
    sa.Column("deadline_at", TIMESTAMP(timezone=True)),
    # Of provider calls: what was sent, and how it ended.
    sa.Column("snapshot_id", sa.Text, nullable=False),
    sa.Column("request_digest", sa.LargeBinary),
    sa.Column("answer_digest", sa.LargeBinary),
    sa.Column("failure", sa.Text, nullable=False),
    sa.Column("created_at", TIMESTAMP(timezone=True), nullable=False, server_default=_NOW),
    sa.Index("operations_turn", "workspace_id", "session_id", "thread_id", "turn_id"),
    sa.Index(
        "operations_open",
        "workspace_id",
        "session_id",
        "thread_id",
        postgresql_where=sa.text("state IN (1, 2, 3)"),
    ),
)

outcomes = sa.Table(
    "outcomes",
    metadata,
    *_thread(),
    sa.Column("operation_id", sa.Text, primary_key=True),
    # rows.Role: receipt, decided outcome, late outcome, note of a late outcome.
    sa.Column("role", sa.SmallInteger, primary_key=True, autoincrement=False),
    # rows.Source: executor, client, closure.
    sa.Column("source", sa.SmallInteger, nullable=False),
    # Sealed; null where the receipt is the raw outcome, where there is none, or when erased. Of a
    # large one, once it is decided, the digest: see raws.
    sa.Column("raw", sa.LargeBinary),
    # Sealed; null of receipts and late outcomes, or when erased.
    sa.Column("projection", sa.LargeBinary),
    # Version of the redaction patterns that the projection went through; empty for none.
    sa.Column("redactor", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("created_at", TIMESTAMP(timezone=True), nullable=False, server_default=_NOW),
    sa.Index(
        "outcomes_late",
        "workspace_id",
        "session_id",
        "thread_id",
        postgresql_where=sa.text("role = 3"),
    ),
)

# Outcomes that were redacted: their bodies are erased as they should be.
redactions = sa.Table(
    "redactions",
    metadata,
    *_thread(),
    sa.Column("operation_id", sa.Text, primary_key=True),
    # Sealed: digest of the erased projection, and the artifacts that it referred to.
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("created_at", TIMESTAMP(timezone=True), nullable=False, server_default=_NOW),
)

access = sa.Table(
    "access",
    metadata,
    sa.Column("access_id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.Text, nullable=False),
    sa.Column("session_id", sa.Text, nullable=False),
    sa.Column("thread_id", sa.Text, nullable=False),
    sa.Column("accessed_at", TIMESTAMP(timezone=True), nullable=False, server_default=_NOW),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("reader", sa.Text, nullable=False),
    sa.Column("purpose", sa.Text, nullable=False),
    sa.Column("operations", sa.Integer, nullable=False),
    sa.Index("access_thread", "workspace_id", "session_id", "thread_id", "accessed_at"),
)
