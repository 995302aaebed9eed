"""Records of redacted entries, and who redacted them."""

import sqlalchemy as sa
from alembic import op

revision = "0003_redactions"
down_revision = "0002_inline_content"

_THREAD = ("workspace_id", "session_id", "thread_id")


def upgrade() -> None:
    """Create the table, whose rows are only ever added, and widen the access record."""
    op.create_table(
        "redactions",
        *(sa.Column(name, sa.Text, primary_key=True) for name in _THREAD),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("seal", sa.LargeBinary, nullable=False),
        schema="transcript",
    )
    op.execute(
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON transcript.redactions"
        " FOR EACH ROW EXECUTE FUNCTION transcript.refuse()"
    )
    op.execute(
        "CREATE TRIGGER no_truncate BEFORE TRUNCATE ON transcript.redactions"
        " FOR EACH STATEMENT EXECUTE FUNCTION transcript.refuse()"
    )
    for name in ("reader", "purpose"):
        column = sa.Column(name, sa.Text, nullable=False, server_default="")
        op.add_column("access", column, schema="transcript")
