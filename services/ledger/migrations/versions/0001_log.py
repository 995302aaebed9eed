"""The public log."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TIMESTAMP

revision = "0001_log"
down_revision = None


def upgrade() -> None:
    """Create the log, its index of queued rows, and the access record."""
    op.create_table(
        "log",
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.SmallInteger, nullable=False),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("event_type", sa.Text, nullable=False),
        sa.Column("processed_at", TIMESTAMP(timezone=True)),
        sa.Column("refers_position", sa.BigInteger),
        sa.Column("sealed", sa.LargeBinary),
        sa.Column("commitment", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("transcript_seq", sa.BigInteger),
        sa.Column("transcript_digest", sa.LargeBinary),
        schema="ledger",
    )
    op.create_index("log_types", "log", ["session_id", "event_type", "position"], schema="ledger")
    # Encrypted bytes do not compress: do not try.
    op.execute("ALTER TABLE ledger.log ALTER COLUMN sealed SET STORAGE EXTERNAL")
    op.create_table(
        "queued",
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        schema="ledger",
    )
    op.create_table(
        "access",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column(
            "accessed_at",
            TIMESTAMP(timezone=True),
            nullable=False,
            server_default=sa.text("now()"),
        ),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        schema="ledger",
    )
    op.create_index("access_session", "access", ["session_id", "accessed_at"], schema="ledger")
