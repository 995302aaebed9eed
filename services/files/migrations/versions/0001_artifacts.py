"""Sessions, blobs and artifacts."""

import sqlalchemy as sa
from alembic import op

revision = "0001_artifacts"
down_revision = None

_S = "files"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "sessions",
        sa.Column("workspace_id", sa.Text, primary_key=True),
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("is_deleted", sa.Boolean, nullable=False),
        schema=_S,
    )
    op.create_table(
        "address_keys",
        sa.Column("workspace_id", sa.Text, primary_key=True),
        sa.Column("key_sealed", sa.LargeBinary, nullable=False),
        schema=_S,
    )
    _create_blobs()
    _create_artifacts()


def _create_blobs() -> None:
    op.create_table(
        "blobs",
        sa.Column("workspace_id", sa.Text, primary_key=True),
        sa.Column("blob_id", sa.Text, primary_key=True),
        sa.Column("address", sa.LargeBinary, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        schema=_S,
    )
    op.create_index(
        "blobs_address",
        "blobs",
        ["workspace_id", "address"],
        unique=True,
        schema=_S,
        postgresql_where=sa.text("state < 3"),
    )
    op.create_index(
        "blobs_deleted",
        "blobs",
        ["workspace_id", "blob_id"],
        schema=_S,
        postgresql_where=sa.text("state = 3"),
    )


def _create_artifacts() -> None:
    op.create_table(
        "artifacts",
        sa.Column("workspace_id", sa.Text, primary_key=True),
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("artifact_id", sa.Text, primary_key=True),
        sa.Column("blob_id", sa.Text, nullable=False),
        sa.Column("sha256", sa.LargeBinary, nullable=False),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("role", sa.SmallInteger, nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("operation_id", sa.Text, nullable=False),
        sa.Column("staged_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("condemned_at", sa.DateTime(timezone=True)),
        schema=_S,
    )
    op.create_index("artifacts_blob", "artifacts", ["workspace_id", "blob_id"], schema=_S)
