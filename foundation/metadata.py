"""Metadata of resources: free key-value pairs that are changed key by key. Pure."""

from collections.abc import Mapping

from counterfoil.types.v1 import annotations_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure, Reason

_PAIRS_MAX = 16
_KEY_CHARACTERS_MAX = 64
_VALUE_CHARACTERS_MAX = 512


def patch(
    found: Mapping[str, str],
    changes: annotations_pb2.MetadataPatch,
    *,
    reason: "Reason.ValueType" = reasons.ERROR_REASON_INVALID_FIELD,
) -> dict[str, str]:
    """The metadata behind a patch; raises a Failure of `reason` for what exceeds the limits."""
    patched = {key: value for key, value in found.items() if key not in changes.remove}
    for key, value in changes.set.items():
        if not 1 <= len(key) <= _KEY_CHARACTERS_MAX:
            limit = f"keys have 1 to {_KEY_CHARACTERS_MAX} characters, got {len(key)}"
            raise Failure(reason, limit, path="metadata")
        if len(value) > _VALUE_CHARACTERS_MAX:
            limit = f"must be at most {_VALUE_CHARACTERS_MAX} characters, got {len(value)}"
            raise Failure(reason, limit, path=f"metadata.{key}")
        patched[key] = value
    if len(patched) > _PAIRS_MAX:
        limit = f"must be at most {_PAIRS_MAX} entries, got {len(patched)}"
        raise Failure(reason, limit, path="metadata")
    return patched
