"""Which redaction patterns a projection went through."""

import sqlalchemy as sa
from alembic import op

revision = "0003_redactor"
down_revision = "0002_late_outcomes"


def upgrade() -> None:
    """Add the column; what is there went through none."""
    column = sa.Column("redactor", sa.Text, nullable=False, server_default=sa.text("''"))
    op.add_column("outcomes", column, schema="journal")
