"""API keys at rest: a keyed hash, whose key is itself sealed.

Keys may be chosen by people, so a plain digest in a stolen dump could be guessed. HMAC under a
random pepper, which is stored only sealed, needs the key ring too, costs microseconds on the hot
path, and survives a rotation of the ring. The database finds candidates by a prefix of the hash;
the decision compares whole hashes in constant time.
"""

import hashlib
import hmac
import os
from collections.abc import Iterable

from foundation.storage import ConfigurationError, Database, Record, SealBroken, SealRing
from services.registry import store

PREFIX_BYTES = 8
_PEPPER_BYTES = 32
_IDENTITY = ("registry.key_pepper", "pepper_sealed", 1)


def hash_of(pepper: bytes, api_key: str) -> bytes:
    """What is stored of a key, 32 bytes."""
    return hmac.digest(pepper, api_key.encode(), hashlib.sha256)


def matching(candidates: Iterable[Record], wanted: bytes) -> Record | None:
    """The row with this key hash. Looks at every candidate, in constant time each."""
    found: Record | None = None
    for row in candidates:
        if hmac.compare_digest(row["key_hash"], wanted):
            found = row
    return found


async def load_pepper(db: Database, ring: SealRing) -> bytes:
    """The deployment's pepper, created on the first call.

    Raises ConfigurationError when the ring lacks the key that sealed it.
    """
    sealed = await store.pepper(db)
    if sealed is None:
        await store.offer_pepper(db, ring.seal(os.urandom(_PEPPER_BYTES), *_IDENTITY))
        sealed = await store.pepper(db)
        assert sealed is not None
    try:
        return ring.open(sealed, *_IDENTITY)
    except SealBroken as error:
        raise ConfigurationError(
            "seal keys: the key ring lacks a key that sealed stored data. Put the key ring back"
            " that this database was used with; its old keys must stay in it."
        ) from error
