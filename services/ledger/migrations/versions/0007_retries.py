"""Turns count how often they were rescheduled."""

import sqlalchemy as sa
from alembic import op

revision = "0007_retries"
down_revision = "0006_revision"


def upgrade() -> None:
    """Add the count."""
    column = sa.Column("retries", sa.Integer, nullable=False, server_default="0")
    op.add_column("turns", column, schema="ledger")
