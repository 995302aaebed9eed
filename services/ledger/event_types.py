"""The JSON `type` of public events, from the contract's options."""

from functools import cache

from counterfoil.ledger.v1 import events_pb2
from counterfoil.types.v1 import annotations_pb2


def type_of(event: events_pb2.Event) -> str:
    """The event's JSON `type`, for example `user.message`; raises ValueError for an empty union."""
    variant = event.WhichOneof("event")
    if variant is None:
        raise ValueError("an event without a variant has no type")
    return _tags()[variant]


@cache
def _tags() -> dict[str, str]:
    union = events_pb2.Event.DESCRIPTOR.oneofs_by_name["event"]
    return {
        field.name: field.GetOptions().Extensions[annotations_pb2.json_tag]
        for field in union.fields
    }
