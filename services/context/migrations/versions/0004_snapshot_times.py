"""When snapshots were made; null of those that were made before this was kept."""

import sqlalchemy as sa
from alembic import op

revision = "0004_snapshot_times"
down_revision = "0003_losses"


def upgrade() -> None:
    """Add the column; the default comes afterwards, so that it does not date what is there."""
    column = sa.Column("created_at", sa.DateTime(timezone=True), nullable=True)
    op.add_column("snapshots", column, schema="context")
    op.alter_column("snapshots", "created_at", schema="context", server_default=sa.text("now()"))
