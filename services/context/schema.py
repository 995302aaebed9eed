"""Tables of the context authority. Snapshots are recipes and hold no message; `prefixes` is the one
table that holds a copy of history, sealed, and can be emptied at any time."""

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData(schema="context")


def _thread() -> list[sa.Column[str]]:
    """The whole key of a thread, so that a foreign part finds nothing."""
    return [
        sa.Column(name, sa.Text, primary_key=True)
        for name in ("workspace_id", "session_id", "thread_id")
    ]


fences = sa.Table(
    "fences",
    metadata,
    *_thread(),
    # The largest bigint is a tombstone: no epoch reaches it.
    sa.Column("epoch_max", sa.BigInteger, nullable=False),
    # Counts snapshots, which are ordered by the count.
    sa.Column("snapshots", sa.BigInteger, nullable=False),
    # Counts the records of transitions, checkpoints and revocations: who records more, or stores a
    # snapshot, names the count that it decided on.
    sa.Column("losses", sa.BigInteger, nullable=False, server_default=sa.text("0")),
)

snapshots = sa.Table(
    "snapshots",
    metadata,
    *_thread(),
    # Derived from thread, turn, round and attempt, so it is unique in them.
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("turn_id", sa.Text, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("attempt_epoch", sa.BigInteger, nullable=False),
    sa.Column("attempt_number", sa.Integer, nullable=False),
    sa.Column("ordinal", sa.BigInteger, nullable=False),
    sa.Column("recipe_sealed", sa.LargeBinary, nullable=False),
    # Null where an older version made it.
    sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()")),
    sa.Index("snapshots_turn", "workspace_id", "session_id", "thread_id", "turn_id", "ordinal"),
)

# The addresses of parts are keyed, so that a dump cannot be asked whether it holds a likely prompt.
part_keys = sa.Table(
    "part_keys",
    metadata,
    sa.Column("workspace_id", sa.Text, primary_key=True),
    sa.Column("key_sealed", sa.LargeBinary, nullable=False),
)

parts = sa.Table(
    "parts",
    metadata,
    sa.Column("workspace_id", sa.Text, primary_key=True),
    sa.Column("address", sa.LargeBinary, primary_key=True),
    sa.Column("body_sealed", sa.LargeBinary, nullable=False),
)

# Which threads use a part: the last one takes it along.
part_uses = sa.Table(
    "part_uses",
    metadata,
    *_thread(),
    sa.Column("address", sa.LargeBinary, primary_key=True),
    sa.Index("part_uses_address", "workspace_id", "address"),
)

# See `prefixes.py`: what may be read instead of the entries through `seq`.
prefixes = sa.Table(
    "prefixes",
    metadata,
    *_thread(),
    # The transcript head that the messages go through.
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    # The materializer that made them, and the thread's count of records then.
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("losses", sa.BigInteger, nullable=False),
    sa.Column("messages_sealed", sa.LargeBinary, nullable=False),
)


def _recorded() -> list[sa.Column[Any]]:
    """What transitions and checkpoints have both; see `losses.py`."""
    return [
        # The thread's count of records, with this one.
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
        # Null once a redaction erased it. A trigger refuses every other change.
        sa.Column("sealed", sa.LargeBinary),
    ]


transitions = sa.Table(
    "transitions",
    metadata,
    *_thread(),
    # Position among the thread's transitions, from 1, without gaps.
    sa.Column("hw", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("target_seq", sa.BigInteger, nullable=False),
    sa.Column("part", sa.Integer, nullable=False),
    sa.Column("ordinal", sa.Integer, nullable=False),
    sa.Column("chain_digest", sa.LargeBinary, nullable=False),
    *_recorded(),
    sa.Index(
        "transitions_target",
        *("workspace_id", "session_id", "thread_id", "target_seq", "part", "ordinal"),
        unique=True,
    ),
    sa.Index("transitions_id", "workspace_id", "session_id", "thread_id", "id", unique=True),
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    *_thread(),
    # Position in the thread's chain of checkpoints, from 1, without gaps.
    sa.Column("ordinal", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("through_seq", sa.BigInteger, nullable=False),
    # Made by the session that this one was forked from: published there.
    sa.Column("is_copied", sa.Boolean, nullable=False),
    *_recorded(),
    sa.Index("checkpoints_id", "workspace_id", "session_id", "thread_id", "id", unique=True),
)

# Written only together with a redaction of something that the checkpoint covers.
revocations = sa.Table(
    "revocations",
    metadata,
    *_thread(),
    sa.Column("ordinal", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("transition_id", sa.Text, nullable=False),
)

access = sa.Table(
    "access",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.Text, nullable=False),
    sa.Column("session_id", sa.Text, nullable=False),
    sa.Column("thread_id", sa.Text, nullable=False),
    sa.Column(
        "accessed_at",
        sa.DateTime(timezone=True),
        nullable=False,
        server_default=sa.text("now()"),
    ),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text, nullable=False),
    # The snapshot that was read, or the transition that a redaction recorded.
    sa.Column("snapshot_id", sa.Text, nullable=False),
    # Of redactions: who asked, and why.
    sa.Column("reader", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("purpose", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Index("access_thread", "workspace_id", "session_id", "thread_id", "accessed_at"),
)
