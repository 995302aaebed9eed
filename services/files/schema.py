"""Tables of the files authority. The bytes are in the object store, sealed; here is who owns what.

A blob is stored once for all sessions of its workspace, under a name that is random and is never
used again: whoever removes an object by its name removes what it meant, however late.
"""

import sqlalchemy as sa

metadata = sa.MetaData(schema="files")


def _moment(name: str, *, nullable: bool = False) -> "sa.Column[object]":
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


# Its row is locked by every writer of the session; a tombstone stays in it.
sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("workspace_id", sa.Text, primary_key=True),
    sa.Column("session_id", sa.Text, primary_key=True),
    sa.Column("is_deleted", sa.Boolean, nullable=False),
)

# The addresses of blobs are keyed, so that two workspaces' addresses of one content differ.
address_keys = sa.Table(
    "address_keys",
    metadata,
    sa.Column("workspace_id", sa.Text, primary_key=True),
    sa.Column("key_sealed", sa.LargeBinary, nullable=False),
)

blobs = sa.Table(
    "blobs",
    metadata,
    sa.Column("workspace_id", sa.Text, primary_key=True),
    # Also the name of its object.
    sa.Column("blob_id", sa.Text, primary_key=True),
    sa.Column("address", sa.LargeBinary, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    # 1 staged, 2 stored, 3 deleted: its object is being removed.
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Index(
        "blobs_address",
        "workspace_id",
        "address",
        unique=True,
        postgresql_where=sa.text("state < 3"),
    ),
    sa.Index("blobs_deleted", "workspace_id", "blob_id", postgresql_where=sa.text("state = 3")),
)

artifacts = sa.Table(
    "artifacts",
    metadata,
    sa.Column("workspace_id", sa.Text, primary_key=True),
    sa.Column("session_id", sa.Text, primary_key=True),
    # Derived from workspace, content, media type and role.
    sa.Column("artifact_id", sa.Text, primary_key=True),
    sa.Column("blob_id", sa.Text, nullable=False),
    sa.Column("sha256", sa.LargeBinary, nullable=False),
    sa.Column("media_type", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    # As in `ArtifactRole` and `ArtifactState` of the contract.
    sa.Column("role", sa.SmallInteger, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("operation_id", sa.Text, nullable=False),
    # When it was staged, copied or revived last.
    _moment("staged_at"),
    _moment("condemned_at", nullable=True),
    sa.Index("artifacts_blob", "workspace_id", "blob_id"),
)
