"""Requests that a client may repeat: under an `Idempotency-Key` a repetition gets the first answer.

The service that owns the effect stores the answer in the effect's transaction (`Replays`), so a
service adopts it with a table (`foundation.idempotency.table`) and nothing else: the RPC pipeline
runs every public POST that carries a key inside one joint transaction.
"""

from foundation.idempotency.keys import HEADER, METADATA, checked, new_id
from foundation.idempotency.replays import Replays

__all__ = [
    "HEADER",
    "METADATA",
    "Replays",
    "checked",
    "new_id",
]
