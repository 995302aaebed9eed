"""Every event of the official client's union is typed in the contract, member by member."""

import typing
from typing import Any

import pytest
from anthropic.types.beta.sessions import beta_managed_agents_stream_session_events as sdk
from counterfoil.ledger.v1 import events_pb2

from foundation.json.shape import descriptor_of, message_of, shape_of

PREVIEWS = {"event_start", "event_delta"}
OWN = {"id", "type", "processed_at"}


def models(annotation: Any) -> list[Any]:
    if typing.get_origin(annotation) is None:
        return [annotation] if hasattr(annotation, "model_fields") else []
    return [found for inner in typing.get_args(annotation) for found in models(inner)]


def sdk_events() -> dict[str, Any]:
    found = models(sdk.BetaManagedAgentsStreamSessionEvents)
    return {typing.get_args(one.model_fields["type"].annotation)[0]: one for one in found}


EVENTS = sdk_events()


def test_the_contract_has_exactly_these_events() -> None:
    assert set(shape_of(descriptor_of(events_pb2.Event)).variants) == set(EVENTS) - PREVIEWS
    assert set(shape_of(descriptor_of(events_pb2.PreviewEvent)).variants) == PREVIEWS


@pytest.mark.parametrize("type_", sorted(EVENTS))
def test_an_event_has_the_members_that_the_client_knows(type_: str) -> None:
    union = events_pb2.PreviewEvent if type_ in PREVIEWS else events_pb2.Event
    ours = shape_of(message_of(shape_of(descriptor_of(union)).variants[type_])).members
    assert {one.key for one in ours} == set(EVENTS[type_].model_fields) - OWN
