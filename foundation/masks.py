"""Update masks: which fields of a request are to change. REST fills them from the keys. Pure."""

from collections.abc import Collection
from typing import Any

from foundation.errors import invalid


def named(
    request: Any, known: Collection[str], beside: Collection[str] = (), path: str = "update_mask"
) -> set[str]:
    """The fields that are to change, of those that can (`known`); without a mask, those that are
    set. REST names every member, so a mask may hold those `beside` the changes too.

    Raises INVALID_FIELD at `path` for a mask that names anything else.
    """
    if not request.HasField("update_mask"):
        return {field.name for field, _ in request.ListFields() if field.name in known}
    paths = set(request.update_mask.paths)
    unknown = paths.difference(known, beside)
    if unknown:
        choices = ", ".join(known)
        raise invalid(path, f"may name {choices}; got {min(unknown)[:80]!r}")
    return paths.difference(beside)
