"""Storage: the one way to PostgreSQL, sealing at rest, migrations."""

from foundation.storage.database import Connection, Database, Record
from foundation.storage.errors import CommitUnknown, ConfigurationError, SealBroken, Unavailable
from foundation.storage.seal import Sealer, SealRing

__all__ = [
    "CommitUnknown",
    "ConfigurationError",
    "Connection",
    "Database",
    "Record",
    "SealBroken",
    "SealRing",
    "Sealer",
    "Unavailable",
]
