"""Fences, operations, outcomes and the access record."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TIMESTAMP

revision = "0001_journal"
down_revision = None

_SCHEMA = "journal"
_THREAD = ["workspace_id", "session_id", "thread_id"]

# A second wall behind states.py: no statement, however wrong, moves an operation backwards.
_GUARD_OPERATION = """
CREATE FUNCTION journal.guard_operation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.workspace_id, NEW.session_id, NEW.thread_id, NEW.operation_id, NEW.kind, NEW.turn_id,
        NEW.round, NEW.attempt_epoch, NEW.attempt_number, NEW.block_index, NEW.owner,
        NEW.created_at)
       IS DISTINCT FROM
       (OLD.workspace_id, OLD.session_id, OLD.thread_id, OLD.operation_id, OLD.kind, OLD.turn_id,
        OLD.round, OLD.attempt_epoch, OLD.attempt_number, OLD.block_index, OLD.owner,
        OLD.created_at)
    THEN
        RAISE EXCEPTION 'an operation cannot become another one';
    END IF;
    IF OLD.nonce_digest IS NOT NULL
       AND (NEW.nonce_digest, NEW.started_at, NEW.deadline_at)
           IS DISTINCT FROM (OLD.nonce_digest, OLD.started_at, OLD.deadline_at)
    THEN
        RAISE EXCEPTION 'an operation starts once';
    END IF;
    IF NEW.state <> OLD.state
       AND (OLD.state, NEW.state) NOT IN ((1,2), (1,4), (1,6), (2,3), (2,4), (2,5), (3,4))
       AND NOT (OLD.kind = 1 AND NEW.state = 4)
    THEN
        RAISE EXCEPTION 'an operation cannot go from state % to %', OLD.state, NEW.state;
    END IF;
    RETURN NEW;
END $$
"""

_ONLY_ERASE = """
CREATE FUNCTION journal.only_erase() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.raw IS NULL AND NEW.projection IS NULL THEN
        OLD.raw := NULL;
        OLD.projection := NULL;
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'outcomes are append-only';
END $$
"""

_REFUSE = """
CREATE FUNCTION journal.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'journal.% refuses %', TG_TABLE_NAME, TG_OP;
END $$
"""

_TRIGGERS = (
    "CREATE TRIGGER guarded BEFORE UPDATE ON journal.operations"
    " FOR EACH ROW EXECUTE FUNCTION journal.guard_operation()",
    "CREATE TRIGGER kept BEFORE DELETE ON journal.operations"
    " FOR EACH ROW EXECUTE FUNCTION journal.refuse()",
    "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON journal.outcomes"
    " FOR EACH ROW EXECUTE FUNCTION journal.only_erase()",
    "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON journal.access"
    " FOR EACH ROW EXECUTE FUNCTION journal.refuse()",
    "CREATE TRIGGER kept BEFORE DELETE ON journal.fences"
    " FOR EACH ROW EXECUTE FUNCTION journal.refuse()",
)


def upgrade() -> None:
    """Create everything, and the triggers that keep the record a record."""
    op.create_table(
        "fences",
        *_thread(),
        sa.Column("epoch_max", sa.BigInteger, nullable=False),
        sa.Column("is_deleted", sa.Boolean, nullable=False),
        schema=_SCHEMA,
    )
    _operations()
    _outcomes()
    _access()
    for statement in (_GUARD_OPERATION, _ONLY_ERASE, _REFUSE, *_TRIGGERS):
        op.execute(statement)
    for table in ("fences", "operations", "outcomes", "access"):
        op.execute(
            f"CREATE TRIGGER no_truncate BEFORE TRUNCATE ON journal.{table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION journal.refuse()"
        )
    # Written by every step: room for new versions on the same page.
    op.execute("ALTER TABLE journal.fences SET (fillfactor = 70)")
    op.execute("ALTER TABLE journal.operations SET (fillfactor = 85)")
    # Encrypted bytes do not compress: do not try.
    op.execute("ALTER TABLE journal.operations ALTER COLUMN input SET STORAGE EXTERNAL")
    for column in ("raw", "projection"):
        op.execute(f"ALTER TABLE journal.outcomes ALTER COLUMN {column} SET STORAGE EXTERNAL")


def _thread() -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, primary_key=True) for name in _THREAD]


def _created_at(name: str = "created_at") -> sa.Column[object]:
    return sa.Column(
        name, TIMESTAMP(timezone=True), nullable=False, server_default=sa.text("now()")
    )


def _operations() -> None:
    op.create_table(
        "operations",
        *_thread(),
        sa.Column("operation_id", sa.Text, primary_key=True),
        sa.Column("kind", sa.SmallInteger, nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("turn_id", sa.Text, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("attempt_epoch", sa.BigInteger, nullable=False),
        sa.Column("attempt_number", sa.Integer, nullable=False),
        sa.Column("block_index", sa.Integer, nullable=False),
        sa.Column("owner", sa.SmallInteger, nullable=False),
        sa.Column("tool_name", sa.Text, nullable=False),
        sa.Column("tool_version", sa.Text, nullable=False),
        sa.Column("input", sa.LargeBinary),
        sa.Column("nonce_digest", sa.LargeBinary),
        sa.Column("started_at", TIMESTAMP(timezone=True)),
        sa.Column("deadline_at", TIMESTAMP(timezone=True)),
        sa.Column("snapshot_id", sa.Text, nullable=False),
        sa.Column("request_digest", sa.LargeBinary),
        sa.Column("answer_digest", sa.LargeBinary),
        sa.Column("failure", sa.Text, nullable=False),
        _created_at(),
        schema=_SCHEMA,
    )
    op.create_index("operations_turn", "operations", [*_THREAD, "turn_id"], schema=_SCHEMA)
    op.create_index(
        "operations_open",
        "operations",
        _THREAD,
        schema=_SCHEMA,
        postgresql_where=sa.text("state IN (1, 2, 3)"),
    )


def _outcomes() -> None:
    op.create_table(
        "outcomes",
        *_thread(),
        sa.Column("operation_id", sa.Text, primary_key=True),
        sa.Column("role", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("source", sa.SmallInteger, nullable=False),
        sa.Column("raw", sa.LargeBinary),
        sa.Column("projection", sa.LargeBinary),
        _created_at(),
        schema=_SCHEMA,
    )


def _access() -> None:
    op.create_table(
        "access",
        sa.Column("access_id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("thread_id", sa.Text, nullable=False),
        _created_at("accessed_at"),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("reader", sa.Text, nullable=False),
        sa.Column("purpose", sa.Text, nullable=False),
        sa.Column("operations", sa.Integer, nullable=False),
        schema=_SCHEMA,
    )
    op.create_index("access_thread", "access", [*_THREAD, "accessed_at"], schema=_SCHEMA)
