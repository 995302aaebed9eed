"""Records of outcomes that were redacted."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TIMESTAMP

revision = "0004_redactions"
down_revision = "0003_redactor"

_KEY = ("workspace_id", "session_id", "thread_id", "operation_id")


def upgrade() -> None:
    """Create the table; its rows are only ever added."""
    op.create_table(
        "redactions",
        *(sa.Column(name, sa.Text, primary_key=True) for name in _KEY),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column(
            "created_at",
            TIMESTAMP(timezone=True),
            nullable=False,
            server_default=sa.text("now()"),
        ),
        schema="journal",
    )
    op.execute(
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON journal.redactions"
        " FOR EACH ROW EXECUTE FUNCTION journal.refuse()"
    )
    op.execute(
        "CREATE TRIGGER no_truncate BEFORE TRUNCATE ON journal.redactions"
        " FOR EACH STATEMENT EXECUTE FUNCTION journal.refuse()"
    )
