"""Sessions count their writes, so that a decision on a copy can be stored or refused."""

import sqlalchemy as sa
from alembic import op

revision = "0006_revision"
down_revision = "0005_replays"


def upgrade() -> None:
    """Add the revision."""
    column = sa.Column("revision", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("sessions", column, schema="ledger")
