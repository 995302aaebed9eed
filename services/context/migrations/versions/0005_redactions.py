"""Who redacted something, and why, in the access record."""

import sqlalchemy as sa
from alembic import op

revision = "0005_redactions"
down_revision = "0004_snapshot_times"


def upgrade() -> None:
    """Add the columns; records of readers have neither."""
    for name in ("reader", "purpose"):
        column = sa.Column(name, sa.Text, nullable=False, server_default="")
        op.add_column("access", column, schema="context")
