"""Turns remember the trace of the call that made them claimable."""

import sqlalchemy as sa
from alembic import op

revision = "0003_traces"
down_revision = "0002_turns"


def upgrade() -> None:
    """Add the trace."""
    column = sa.Column("traceparent", sa.Text, nullable=False, server_default="")
    op.add_column("turns", column, schema="ledger")
