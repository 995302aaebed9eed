"""Agents and environments are listed by creation."""

from alembic import op

revision = "0003"
down_revision = "0002"

_S = "registry"


def upgrade() -> None:
    """Create the indexes."""
    for table in ("agents", "environments"):
        op.create_index(
            f"{table}_by_creation", table, ["workspace_id", "created_at", "id"], schema=_S
        )
