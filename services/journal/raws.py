"""What is kept of a raw outcome: for ever only what is small. Pure.

Until its operation is decided a raw outcome is needed as it came: to be projected again after a
crash, and a late one to be told. Behind that it serves diagnosis, and the recognition of a repeat,
for which a digest is enough; only one that could not be shown stays, as nothing else holds it.
"""

from foundation.digests import digest

RAW_BYTES_MAX = 100_000
"""A larger raw outcome is erased when nobody needs it any more."""

_DOMAIN = "counterfoil.raw_outcome.v1"
_DIGEST_MARK = b"\0"
"""No serialized outcome begins with it: 0 is no number of a field."""


def is_large(raw: bytes) -> bool:
    """Whether only the digest of a raw outcome is kept."""
    return len(raw) > RAW_BYTES_MAX


def lasting(raw: bytes) -> bytes:
    """What is kept of a raw outcome for as long as its session: itself, or its digest."""
    return _digest(raw) if is_large(raw) else raw


def is_same(stored: bytes | None, raw: bytes) -> bool:
    """Whether `stored` is what was kept of this raw outcome."""
    if stored is not None and stored.startswith(_DIGEST_MARK):
        return stored == _digest(raw)
    return stored == raw


def _digest(raw: bytes) -> bytes:
    return _DIGEST_MARK + digest(_DOMAIN, raw)
