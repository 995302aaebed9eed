"""Events as messages, for gRPC subscribers who ask for them: stored JSON, read by the one codec."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from counterfoil.ledger.v1 import events_pb2, session_pb2

from foundation import json
from foundation.errors import Failure, Reason
from foundation.json import InvalidJson


def event(raw: bytes) -> events_pb2.Event:
    """A stored event with its time. Raises CORRUPT for JSON that the contract does not know."""
    try:
        return json.decode(events_pb2.Event, raw)
    except InvalidJson as error:
        reason = Reason.ERROR_REASON_CORRUPT
        raise Failure(reason, f"a stored event is not of the contract: {error}") from None


def page(response: session_pb2.ListEventsResponse) -> session_pb2.ListEventsResponse:
    """The same page with events as messages."""
    response.events.extend(map(event, response.data))
    response.ClearField("data")
    return response


async def stream(
    responses: AsyncGenerator[session_pb2.StreamEventsResponse],
) -> AsyncGenerator[session_pb2.StreamEventsResponse]:
    """The same responses with events as messages; frames are shared by subscribers, so each gets
    copies of its own."""
    async with aclosing(responses):
        async for response in responses:
            frames = [_frame(frame) for frame in response.frames]
            yield session_pb2.StreamEventsResponse(
                frames=frames, position_through=response.position_through, end=response.end
            )


def _frame(given: session_pb2.StreamFrame) -> session_pb2.StreamFrame:
    made = session_pb2.StreamFrame(position=given.position, type=given.type)
    if given.position:
        made.event.CopyFrom(event(given.json))
    else:
        made.preview.CopyFrom(json.decode(events_pb2.PreviewEvent, given.json))
    return made
