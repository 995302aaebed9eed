"""What an id of ours looks like: other text never reaches the database."""

import re

from foundation.errors import not_found

_ID = re.compile(r"[a-z]{1,16}_[0-9a-z]{26}")


def is_id(text: str) -> bool:
    """Whether a text can be an id of ours."""
    return _ID.fullmatch(text) is not None


def known(id: str, what: str = "session") -> str:
    """The id, unless it cannot be one of ours; raises NOT_FOUND."""
    if not is_id(id):
        raise not_found(what, id[:80])
    return id
