"""Transitions and checkpoints: what was taken from a thread's history, recorded before it is."""

import sqlalchemy as sa
from alembic import op

revision = "0003_losses"
down_revision = "0002_prefixes"

_S = "context"
_THREAD = ("workspace_id", "session_id", "thread_id")


def upgrade() -> None:
    """Create the tables, and count the records of a thread."""
    op.add_column(
        "fences", sa.Column("losses", sa.BigInteger, nullable=False, server_default="0"), schema=_S
    )
    # A copy that can be made again: its rows say too little for this version.
    op.execute("DELETE FROM context.prefixes")
    op.add_column("prefixes", sa.Column("losses", sa.BigInteger, nullable=False), schema=_S)
    op.create_table(
        "transitions",
        *(sa.Column(name, sa.Text, primary_key=True) for name in _THREAD),
        sa.Column("hw", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("target_seq", sa.BigInteger, nullable=False),
        sa.Column("part", sa.Integer, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("chain_digest", sa.LargeBinary, nullable=False),
        *_recorded(),
        schema=_S,
    )
    target = (*_THREAD, "target_seq", "part", "ordinal")
    op.create_index("transitions_target", "transitions", target, unique=True, schema=_S)
    op.create_index("transitions_id", "transitions", (*_THREAD, "id"), unique=True, schema=_S)
    op.create_table(
        "checkpoints",
        *(sa.Column(name, sa.Text, primary_key=True) for name in _THREAD),
        sa.Column("ordinal", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("through_seq", sa.BigInteger, nullable=False),
        sa.Column("is_copied", sa.Boolean, nullable=False),
        *_recorded(),
        schema=_S,
    )
    op.create_index("checkpoints_id", "checkpoints", (*_THREAD, "id"), unique=True, schema=_S)
    op.create_table(
        "revocations",
        *(sa.Column(name, sa.Text, primary_key=True) for name in _THREAD),
        sa.Column("ordinal", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("transition_id", sa.Text, nullable=False),
        schema=_S,
    )
    _refuse_changes()


def _recorded() -> list[sa.Column[object]]:
    """What both kinds of records have."""
    return [
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("turn_id", sa.Text, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column(
            "recorded_at",
            sa.DateTime(timezone=True),
            nullable=False,
            server_default=sa.text("now()"),
        ),
        # Null once a redaction erased it.
        sa.Column("sealed", sa.LargeBinary),
    ]


def _refuse_changes() -> None:
    """Records are never changed: their bytes may be erased, and all go with their thread."""
    op.execute(
        """
        CREATE FUNCTION context.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
            erased record;
        BEGIN
            IF TG_OP = 'DELETE' THEN
                IF EXISTS (
                    SELECT FROM context.fences f
                    WHERE f.workspace_id = OLD.workspace_id AND f.session_id = OLD.session_id
                      AND f.thread_id = OLD.thread_id AND f.epoch_max = 9223372036854775807
                ) THEN
                    RETURN OLD;
                END IF;
            ELSE
                erased := OLD;
                erased.sealed := NULL;
                IF NEW IS NOT DISTINCT FROM erased THEN
                    RETURN NEW;
                END IF;
            END IF;
            RAISE EXCEPTION 'records of % are never changed', TG_TABLE_NAME;
        END
        $$
        """
    )
    for table in ("transitions", "checkpoints"):
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON context.{table} "
            "FOR EACH ROW EXECUTE FUNCTION context.refuse_change()"
        )
