"""What every outgoing call carries: credential, request id, trace, and a deadline."""

from collections.abc import Sequence

from foundation import telemetry
from foundation.rpc.admission import AUTHORIZATION
from foundation.rpc.context import current
from foundation.rpc.pipeline import REQUEST_ID

SECONDS_DEFAULT = 30.0
"""A unary call without a deadline of its own gets this one, or what its caller has left."""

Metadata = Sequence[tuple[str, str]]


def metadata(credential: str, own: Metadata | None) -> list[tuple[str, str]]:
    """The metadata of one call; what the caller gave wins."""
    found = dict(own or ())
    if AUTHORIZATION not in found and credential:
        found[AUTHORIZATION] = f"Bearer {credential}"
    if REQUEST_ID not in found and current().request_id:
        found[REQUEST_ID] = current().request_id
    telemetry.inject(found)
    return list(found.items())


def seconds(own: float | None) -> float:
    """The deadline of one unary call."""
    left = current().seconds_left()
    chosen = SECONDS_DEFAULT if own is None else own
    return chosen if left is None else min(chosen, left)
