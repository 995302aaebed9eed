"""Sessions are listed, and may change what their turns run with."""

import sqlalchemy as sa
from alembic import op

revision = "0004_session_lists"
down_revision = "0003_traces"


def upgrade() -> None:
    """Add the columns and the index."""
    for name in ("agent_version", "runtime_before_through", "runtime_revision"):
        column = sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        op.add_column("sessions", column, schema="ledger")
    op.add_column("sessions", sa.Column("runtime_before", sa.LargeBinary), schema="ledger")
    op.create_index(
        "sessions_created",
        "sessions",
        ["workspace_id", "created_at", "session_id"],
        schema="ledger",
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
