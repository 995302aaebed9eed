"""Sessions may begin with the history of another one."""

import sqlalchemy as sa
from alembic import op

revision = "0009_forks"
down_revision = "0008_usage"


def upgrade() -> None:
    """Add the table of what forks are copied from."""
    op.create_table(
        "forks",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("turn_id", sa.Text, nullable=False),
        sa.Column("source_session_id", sa.Text, nullable=False),
        sa.Column("source_thread_id", sa.Text, nullable=False),
        sa.Column("cut_seq", sa.BigInteger, nullable=False),
        sa.Column("cut_digest", sa.LargeBinary, nullable=False),
        schema="ledger",
    )
    op.create_index("forks_source", "forks", ["source_session_id"], schema="ledger")
