"""Late outcomes are found by their thread, and tool names may hold U+0000."""

import sqlalchemy as sa
from alembic import op

revision = "0002_late_outcomes"
down_revision = "0001_journal"


def upgrade() -> None:
    """Names become their UTF-8 bytes; late outcomes get an index."""
    op.execute(
        "ALTER TABLE journal.operations ALTER COLUMN tool_name"
        " TYPE bytea USING convert_to(tool_name, 'UTF8')"
    )
    op.create_index(
        "outcomes_late",
        "outcomes",
        ["workspace_id", "session_id", "thread_id"],
        schema="journal",
        postgresql_where=sa.text("role = 3"),
    )
