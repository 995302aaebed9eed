"""Sessions count what was cached for an hour, and web searches and fetches."""

import sqlalchemy as sa
from alembic import op

revision = "0008_usage"
down_revision = "0007_retries"


def upgrade() -> None:
    """Add the counts."""
    for name in ("cache_creation_1h_tokens", "web_searches", "web_fetches"):
        column = sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        op.add_column("sessions", column, schema="ledger")
