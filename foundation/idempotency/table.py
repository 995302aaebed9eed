"""The table of stored answers: the same in every service's schema."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TIMESTAMP

NAME = "replays"

_INDEXES = {
    "replays_by_age": ["created_at"],
    "replays_by_resource": ["workspace_id", "resource_id"],
}


def replays_table(metadata: sa.MetaData) -> sa.Table:
    """Declare the table in a service's collection."""
    indexes = [sa.Index(name, *columns) for name, columns in _INDEXES.items()]
    return sa.Table(NAME, metadata, *_columns(), *indexes)


def create_replays(schema: str) -> None:
    """Create the table in a migration."""
    from alembic import op

    op.create_table(NAME, *_columns(), schema=schema)
    for name, columns in _INDEXES.items():
        op.create_index(name, NAME, columns, schema=schema)


def _columns() -> "list[sa.Column[Any]]":
    return [
        sa.Column("workspace_id", sa.Text, primary_key=True),
        # The RPC's path.
        sa.Column("method", sa.Text, primary_key=True),
        sa.Column("key_digest", sa.LargeBinary, primary_key=True),
        sa.Column(
            "created_at", TIMESTAMP(timezone=True), nullable=False, server_default=sa.text("now()")
        ),
        # What the answer is about: the row goes when that is deleted. Null while the call runs.
        sa.Column("resource_id", sa.Text),
        # Digest of the request and the answer. Null while the call runs.
        sa.Column("sealed", sa.LargeBinary),
    ]
