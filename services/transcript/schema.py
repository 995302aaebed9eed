"""Tables of the transcript."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TIMESTAMP

metadata = sa.MetaData(schema="transcript")


def _thread() -> list[sa.Column[str]]:
    """The key of a thread, in every key whole, so that a foreign part finds nothing."""
    return [
        sa.Column(name, sa.Text, primary_key=True)
        for name in ("workspace_id", "session_id", "thread_id")
    ]


heads = sa.Table(
    "heads",
    metadata,
    *_thread(),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("epoch_max", sa.BigInteger, nullable=False),
    sa.Column("is_deleted", sa.Boolean, nullable=False),
    # The row's other columns, sealed: only a holder of the key can forge a head.
    sa.Column("seal", sa.LargeBinary, nullable=False),
)

entries = sa.Table(
    "entries",
    metadata,
    *_thread(),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("entry_id", sa.Text, nullable=False),
    sa.Column("kind", sa.SmallInteger, nullable=False),
    sa.Column("turn_id", sa.Text, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    # 0 where the entry is no answer.
    sa.Column("attempt_epoch", sa.BigInteger, nullable=False),
    sa.Column("attempt_number", sa.Integer, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    # Salt and serialized EntryContent, sealed; null when erased.
    sa.Column("content", sa.LargeBinary),
    sa.Column("commitment", sa.LargeBinary, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Index("entries_id", "workspace_id", "session_id", "thread_id", "entry_id", unique=True),
    sa.Index("entries_turn", "workspace_id", "session_id", "thread_id", "turn_id", "seq"),
)

id_map = sa.Table(
    "id_map",
    metadata,
    *_thread(),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("block_index", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("operation_id", sa.Text, nullable=False),
    sa.Column("event_id", sa.Text, nullable=False),
    # Sealed; null when erased.
    sa.Column("provider_tool_use_id", sa.LargeBinary),
    sa.Index("id_map_operation", "workspace_id", "session_id", "thread_id", "operation_id"),
    sa.Index("id_map_event", "workspace_id", "session_id", "thread_id", "event_id"),
)

# Entries that were redacted: their content is erased as it should be.
redactions = sa.Table(
    "redactions",
    metadata,
    *_thread(),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    # The entry's commitment, sealed: only a holder of the key can say that it was redacted.
    sa.Column("seal", sa.LargeBinary, nullable=False),
)

access = sa.Table(
    "access",
    metadata,
    sa.Column("access_id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.Text, nullable=False),
    sa.Column("session_id", sa.Text, nullable=False),
    sa.Column("thread_id", sa.Text, nullable=False),
    sa.Column(
        "accessed_at", TIMESTAMP(timezone=True), nullable=False, server_default=sa.text("now()")
    ),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    # Of redactions: who asked, and why.
    sa.Column("reader", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("purpose", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Index("access_thread", "workspace_id", "session_id", "thread_id", "accessed_at"),
)
