"""Heads, entries, the id map and the access record."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TIMESTAMP

revision = "0001_transcript"
down_revision = None

_SCHEMA = "transcript"
_THREAD = ["workspace_id", "session_id", "thread_id"]

_ONLY_ERASE = """
CREATE FUNCTION transcript.only_erase_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.content IS NULL THEN
        OLD.content := NULL;
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'transcript entries are append-only';
END $$
"""

_ONLY_ERASE_NAME = """
CREATE FUNCTION transcript.only_erase_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.provider_tool_use_id IS NULL THEN
        OLD.provider_tool_use_id := NULL;
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'the id map is append-only';
END $$
"""

_REFUSE = """
CREATE FUNCTION transcript.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'transcript.% refuses %', TG_TABLE_NAME, TG_OP;
END $$
"""

_TRIGGERS = (
    "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON transcript.entries"
    " FOR EACH ROW EXECUTE FUNCTION transcript.only_erase_entry()",
    "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON transcript.id_map"
    " FOR EACH ROW EXECUTE FUNCTION transcript.only_erase_name()",
    "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON transcript.access"
    " FOR EACH ROW EXECUTE FUNCTION transcript.refuse()",
    "CREATE TRIGGER kept BEFORE DELETE ON transcript.heads"
    " FOR EACH ROW EXECUTE FUNCTION transcript.refuse()",
)


def upgrade() -> None:
    """Create everything, and the triggers that keep the logs append-only."""
    _heads()
    _entries()
    _id_map()
    _access()
    for statement in (_ONLY_ERASE, _ONLY_ERASE_NAME, _REFUSE, *_TRIGGERS):
        op.execute(statement)
    for table in ("entries", "id_map", "access", "heads"):
        op.execute(
            f"CREATE TRIGGER no_truncate BEFORE TRUNCATE ON transcript.{table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION transcript.refuse()"
        )


def _thread() -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, primary_key=True) for name in _THREAD]


def _heads() -> None:
    op.create_table(
        "heads",
        *_thread(),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("epoch_max", sa.BigInteger, nullable=False),
        sa.Column("is_deleted", sa.Boolean, nullable=False),
        sa.Column("seal", sa.LargeBinary, nullable=False),
        schema=_SCHEMA,
    )
    # Written with every append: room for new versions on the same page.
    op.execute("ALTER TABLE transcript.heads SET (fillfactor = 70)")


def _entries() -> None:
    op.create_table(
        "entries",
        *_thread(),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("entry_id", sa.Text, nullable=False),
        sa.Column("kind", sa.SmallInteger, nullable=False),
        sa.Column("turn_id", sa.Text, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("attempt_epoch", sa.BigInteger, nullable=False),
        sa.Column("attempt_number", sa.Integer, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary),
        sa.Column("commitment", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        schema=_SCHEMA,
    )
    op.create_index("entries_id", "entries", [*_THREAD, "entry_id"], unique=True, schema=_SCHEMA)
    op.create_index("entries_turn", "entries", [*_THREAD, "turn_id", "seq"], schema=_SCHEMA)
    # Encrypted bytes do not compress: do not try.
    op.execute("ALTER TABLE transcript.entries ALTER COLUMN content SET STORAGE EXTERNAL")


def _id_map() -> None:
    op.create_table(
        "id_map",
        *_thread(),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("block_index", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("operation_id", sa.Text, nullable=False),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("provider_tool_use_id", sa.LargeBinary),
        schema=_SCHEMA,
    )
    op.create_index("id_map_operation", "id_map", [*_THREAD, "operation_id"], schema=_SCHEMA)
    op.create_index("id_map_event", "id_map", [*_THREAD, "event_id"], schema=_SCHEMA)


def _access() -> None:
    op.create_table(
        "access",
        sa.Column("access_id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("thread_id", sa.Text, nullable=False),
        sa.Column(
            "accessed_at",
            TIMESTAMP(timezone=True),
            nullable=False,
            server_default=sa.text("now()"),
        ),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        schema=_SCHEMA,
    )
    op.create_index("access_thread", "access", [*_THREAD, "accessed_at"], schema=_SCHEMA)
