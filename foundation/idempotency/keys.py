"""The key: its form, and the ids that follow from it."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from foundation import ids
from foundation.errors import invalid

HEADER = "Idempotency-Key"
METADATA = "idempotency-key"
"""Name of the header, and of the gRPC metadata."""

KEY_CHARACTERS_MAX = 255


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to be the one request of its key. Keys may be used again after a day, on another
    date: the date is a part of what ids are derived from."""

    workspace_id: str
    method: str
    key: str
    date: str


_claim: ContextVar[Claim | None] = ContextVar("counterfoil_claim", default=None)


def checked(key: str) -> str:
    """The key; raises INVALID_FIELD unless it is 1 to 255 printable ASCII characters."""
    if 1 <= len(key) <= KEY_CHARACTERS_MAX and key.isascii() and key.isprintable():
        return key
    raise invalid(HEADER, f"must be 1 to {KEY_CHARACTERS_MAX} printable ASCII characters")


def new_id(kind: str, *coordinates: str | int) -> str:
    """An id for something that a request creates: under a key it is the same in every attempt."""
    claim = _claim.get()
    if claim is None:
        return ids.new(kind)
    scope = (claim.workspace_id, claim.method, claim.key, claim.date)
    return ids.derived(kind, *scope, *coordinates)


@contextmanager
def claimed(claim: Claim) -> Generator[None]:
    """The block works for this claim."""
    token = _claim.set(claim)
    try:
        yield
    finally:
        _claim.reset(token)
