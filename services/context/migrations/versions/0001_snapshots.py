"""Fences, snapshots, their parts, and the access record."""

import sqlalchemy as sa
from alembic import op

revision = "0001_snapshots"
down_revision = None

_S = "context"
_THREAD = ("workspace_id", "session_id", "thread_id")


def _thread() -> "list[sa.Column[str]]":
    return [sa.Column(name, sa.Text, primary_key=True) for name in _THREAD]


def upgrade() -> None:
    """Create the tables."""
    _create_snapshots()
    _create_parts()
    op.create_table(
        "access",
        sa.Column("id", sa.Text, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in _THREAD),
        sa.Column(
            "accessed_at",
            sa.DateTime(timezone=True),
            nullable=False,
            server_default=sa.text("now()"),
        ),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("snapshot_id", sa.Text, nullable=False),
        schema=_S,
    )
    op.create_index("access_thread", "access", [*_THREAD, "accessed_at"], schema=_S)


def _create_snapshots() -> None:
    op.create_table(
        "fences",
        *_thread(),
        sa.Column("epoch_max", sa.BigInteger, nullable=False),
        sa.Column("snapshots", sa.BigInteger, nullable=False),
        schema=_S,
    )
    op.create_table(
        "snapshots",
        *_thread(),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("turn_id", sa.Text, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("attempt_epoch", sa.BigInteger, nullable=False),
        sa.Column("attempt_number", sa.Integer, nullable=False),
        sa.Column("ordinal", sa.BigInteger, nullable=False),
        sa.Column("recipe_sealed", sa.LargeBinary, nullable=False),
        schema=_S,
    )
    op.create_index("snapshots_turn", "snapshots", [*_THREAD, "turn_id", "ordinal"], schema=_S)


def _create_parts() -> None:
    op.create_table(
        "part_keys",
        sa.Column("workspace_id", sa.Text, primary_key=True),
        sa.Column("key_sealed", sa.LargeBinary, nullable=False),
        schema=_S,
    )
    op.create_table(
        "parts",
        sa.Column("workspace_id", sa.Text, primary_key=True),
        sa.Column("address", sa.LargeBinary, primary_key=True),
        sa.Column("body_sealed", sa.LargeBinary, nullable=False),
        schema=_S,
    )
    # Encrypted bytes do not compress: do not try.
    op.execute("ALTER TABLE context.parts ALTER COLUMN body_sealed SET STORAGE EXTERNAL")
    op.create_table(
        "part_uses",
        *_thread(),
        sa.Column("address", sa.LargeBinary, primary_key=True),
        schema=_S,
    )
    op.create_index("part_uses_address", "part_uses", ["workspace_id", "address"], schema=_S)
