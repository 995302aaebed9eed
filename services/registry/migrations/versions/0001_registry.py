"""Workspaces, keys, agents and their versions, environments."""

from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_S = "registry"


def _created() -> "sa.Column[datetime]":
    return sa.Column(
        "created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("now()")
    )


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "workspaces",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        _created(),
        schema=_S,
    )
    op.create_table(
        "key_pepper",
        sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("pepper_sealed", sa.LargeBinary, nullable=False),
        schema=_S,
    )
    op.create_table(
        "api_keys",
        sa.Column("workspace_id", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("key_prefix", sa.LargeBinary, nullable=False),
        sa.Column("key_hash", sa.LargeBinary, nullable=False, unique=True),
        _created(),
        sa.UniqueConstraint("workspace_id", "name"),
        schema=_S,
    )
    op.create_index("api_keys_by_prefix", "api_keys", ["key_prefix"], schema=_S)
    op.create_table(
        "agents",
        sa.Column("workspace_id", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("version_newest", sa.BigInteger, nullable=False),
        _created(),
        sa.Column("archived_at", sa.DateTime(timezone=True)),
        schema=_S,
    )
    op.create_table(
        "agent_versions",
        sa.Column("workspace_id", sa.Text, primary_key=True),
        sa.Column("agent_id", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("definition_sealed", sa.LargeBinary, nullable=False),
        _created(),
        schema=_S,
    )
    op.create_table(
        "environments",
        sa.Column("workspace_id", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name_utf8", sa.LargeBinary, nullable=False),
        sa.Column("definition_sealed", sa.LargeBinary, nullable=False),
        _created(),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            nullable=False,
            server_default=sa.text("now()"),
        ),
        sa.Column("archived_at", sa.DateTime(timezone=True)),
        schema=_S,
    )
    op.create_index(
        "environments_name_in_use",
        "environments",
        ["workspace_id", "name_utf8"],
        unique=True,
        schema=_S,
        postgresql_where=sa.text("archived_at IS NULL"),
    )
