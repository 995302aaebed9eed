"""Cursors of lists: a place as opaque text, sealed for one list, so that no other list opens it.

The identity names the list and what its places depend on (workspace, parent, order). What may
change from page to page, like a limit, is no part of it.
"""

import base64
import binascii
from typing import TypeVar

import msgspec

from foundation.errors import invalid
from foundation.storage import SealBroken, SealRing

P = TypeVar("P")


def write(ring: SealRing, place: tuple[object, ...], *identity: str | int) -> str:
    """The place as URL-safe text without padding."""
    sealed = ring.seal(msgspec.msgpack.encode(place), *identity)
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()


def read(ring: SealRing, shape: type[P], text: str, must: str, *identity: str | int) -> P:
    """The place that `write` took, for the same identity; `shape` is its tuple type.

    Raises INVALID_FIELD at `page` for anything else; `must` says what the text should have been.
    """
    try:
        padded = text + "=" * (-len(text) % 4)
        sealed = base64.b64decode(padded, altchars=b"-_", validate=True)
        return msgspec.msgpack.decode(ring.open(sealed, *identity), type=shape)
    except (ValueError, binascii.Error, SealBroken):
        raise invalid("page", f"must be {must}") from None
