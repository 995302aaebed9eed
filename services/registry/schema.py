"""Tables of the registry. Definitions are sealed: system prompts and hosts are the customer's."""

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Index,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from foundation.idempotency.table import replays_table

metadata = MetaData(schema="registry")

workspaces = Table(
    "workspaces",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
)

# One row for the deployment: keys are found before their workspace is known.
key_pepper = Table(
    "key_pepper",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("pepper_sealed", LargeBinary, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("workspace_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("key_prefix", LargeBinary, nullable=False),
    Column("key_hash", LargeBinary, nullable=False, unique=True),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    UniqueConstraint("workspace_id", "name"),
    Index("api_keys_by_prefix", "key_prefix"),
)

agents = Table(
    "agents",
    metadata,
    Column("workspace_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("version_newest", BigInteger, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    Column("archived_at", DateTime(timezone=True)),
    Index("agents_by_creation", "workspace_id", "created_at", "id"),
)

agent_versions = Table(
    "agent_versions",
    metadata,
    Column("workspace_id", Text, primary_key=True),
    Column("agent_id", Text, primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("definition_sealed", LargeBinary, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
)

environments = Table(
    "environments",
    metadata,
    Column("workspace_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    # Bytes, not text: a name may hold U+0000, and no collation may call two names equal.
    Column("name_utf8", LargeBinary, nullable=False),
    Column("definition_sealed", LargeBinary, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    Column("archived_at", DateTime(timezone=True)),
    Index("environments_by_creation", "workspace_id", "created_at", "id"),
    Index(
        "environments_name_in_use",
        "workspace_id",
        "name_utf8",
        unique=True,
        postgresql_where=text("archived_at IS NULL"),
    ),
)

replays = replays_table(metadata)
