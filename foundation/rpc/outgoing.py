"""What every outgoing call carries: credential, request id, trace, and a deadline."""

from collections.abc import Mapping, Sequence

from foundation import telemetry
from foundation.rpc.admission import AUTHORIZATION
from foundation.rpc.context import current
from foundation.rpc.pipeline import REQUEST_ID

SECONDS_DEFAULT = 30.0
"""A unary call without a deadline of its own gets this one, or what its caller has left."""

Metadata = Sequence[tuple[str, str]]


def bearer(credential: str) -> dict[str, str]:
    """What the calls of one channel have in common."""
    return {AUTHORIZATION: f"Bearer {credential}"} if credential else {}


def metadata(common: Mapping[str, str], own: Metadata | None) -> dict[str, str]:
    """The metadata of one call; what the caller gave wins."""
    found = {**common, **dict(own)} if own else dict(common)
    if REQUEST_ID not in found and (request_id := current().request_id):
        found[REQUEST_ID] = request_id
    telemetry.inject(found)
    return found


def seconds(own: float | None) -> float:
    """The deadline of one unary call."""
    left = current().seconds_left()
    chosen = SECONDS_DEFAULT if own is None else own
    return chosen if left is None else min(chosen, left)
