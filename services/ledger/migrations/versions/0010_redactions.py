"""Records of redacted events, and who redacted them."""

import sqlalchemy as sa
from alembic import op

revision = "0010_redactions"
down_revision = "0009_forks"


def upgrade() -> None:
    """Create the table, and widen the access record."""
    op.create_table(
        "redactions",
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("seal", sa.LargeBinary, nullable=False),
        schema="ledger",
    )
    for name in ("reader", "purpose"):
        column = sa.Column(name, sa.Text, nullable=False, server_default="")
        op.add_column("access", column, schema="ledger")
