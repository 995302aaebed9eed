"""Answers to requests that came with an idempotency key."""

from foundation.idempotency.table import create_replays

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table."""
    create_replays("registry")
