"""Tables of the public log. Rows of `log` are only ever added; erasing takes `sealed` away."""

from sqlalchemy import BigInteger, Column, Index, LargeBinary, SmallInteger, Table, Text, text
from sqlalchemy.dialects.postgresql import TIMESTAMP

from services.ledger.tables import metadata

log = Table(
    "log",
    metadata,
    Column("workspace_id", Text, nullable=False),
    Column("session_id", Text, primary_key=True),
    # From 1, without gaps; comes from the session's row, under its lock.
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    # One of the kinds of `log_row.py`.
    Column("kind", SmallInteger, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    # Null for queued rows.
    Column("processed_at", TIMESTAMP(timezone=True)),
    # With a mark: position of its queued row.
    Column("refers_position", BigInteger),
    # Salt and body; null for marks and once it was erased.
    Column("sealed", LargeBinary),
    # Empty for marks.
    Column("commitment", LargeBinary, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    # The transcript's head, where this entry vouches for it.
    Column("transcript_seq", BigInteger),
    Column("transcript_digest", LargeBinary),
)

# A page of certain types reads only rows of these types.
Index("log_types", log.c.session_id, log.c.event_type, log.c.position)

# Queued rows that no mark refers to yet; derived from `log`, and verified against it.
queued = Table(
    "queued",
    metadata,
    Column("workspace_id", Text, nullable=False),
    Column("session_id", Text, primary_key=True),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
)

# Entries whose body was replaced, because it was redacted.
redactions = Table(
    "redactions",
    metadata,
    Column("workspace_id", Text, nullable=False),
    Column("session_id", Text, primary_key=True),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    # The entry's commitment, sealed: only a holder of the key can say that it was redacted.
    Column("seal", LargeBinary, nullable=False),
)

# Who looked behind the public surface. Rows are only ever added.
access = Table(
    "access",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", Text, nullable=False),
    Column("session_id", Text, nullable=False),
    Column("accessed_at", TIMESTAMP(timezone=True), nullable=False, server_default=text("now()")),
    # What was done, for example `verify`.
    Column("action", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    # Head of the log at that moment.
    Column("position", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    # Of redactions: who asked, and why.
    Column("reader", Text, nullable=False, server_default=text("''")),
    Column("purpose", Text, nullable=False, server_default=text("''")),
)

Index("access_session", access.c.session_id, access.c.accessed_at)
