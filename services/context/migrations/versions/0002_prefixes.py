"""Message bytes of long threads, kept for processes that do not know them."""

import sqlalchemy as sa
from alembic import op

revision = "0002_prefixes"
down_revision = "0001_snapshots"

_THREAD = ("workspace_id", "session_id", "thread_id")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "prefixes",
        *(sa.Column(name, sa.Text, primary_key=True) for name in _THREAD),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("messages_sealed", sa.LargeBinary, nullable=False),
        schema="context",
    )
    # Encrypted bytes do not compress: do not try.
    op.execute("ALTER TABLE context.prefixes ALTER COLUMN messages_sealed SET STORAGE EXTERNAL")
