"""Answers to requests that came with an idempotency key."""

from foundation.idempotency.table import create_replays

revision = "0005_replays"
down_revision = "0004_session_lists"


def upgrade() -> None:
    """Create the table."""
    create_replays("ledger")
