"""The official client meets its own error classes and decodes our streams."""

from collections.abc import AsyncGenerator
from typing import Any

import anthropic
import pytest
from counterfoil.types.v1 import error_reason_pb2 as reasons

from gateway.server import Server
from tests.gateway.support import API_KEY, SESSION, Behaviour, failing, frame


@pytest.fixture
async def sdk(server: Server) -> AsyncGenerator[anthropic.AsyncAnthropic]:
    url = f"http://127.0.0.1:{server.port}"
    async with anthropic.AsyncAnthropic(base_url=url, api_key=API_KEY, max_retries=0) as client:
        yield client


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (reasons.ERROR_REASON_INVALID_FIELD, anthropic.BadRequestError),
        (reasons.ERROR_REASON_UNAUTHENTICATED, anthropic.AuthenticationError),
        (reasons.ERROR_REASON_PERMISSION_DENIED, anthropic.PermissionDeniedError),
        (reasons.ERROR_REASON_NOT_FOUND, anthropic.NotFoundError),
        (reasons.ERROR_REASON_CONFLICT, anthropic.ConflictError),
        (reasons.ERROR_REASON_UNAVAILABLE, anthropic.InternalServerError),
        (reasons.ERROR_REASON_INTERNAL, anthropic.InternalServerError),
    ],
)
async def test_reasons_are_the_clients_error_classes(
    sdk: anthropic.AsyncAnthropic, behaviour: Behaviour, reason: int, expected: type[Exception]
) -> None:
    behaviour.failure = failing(reason)
    with pytest.raises(expected) as caught:
        await sdk.beta.sessions.retrieve(SESSION)
    assert isinstance(caught.value, anthropic.APIStatusError)
    assert str(caught.value.request_id).startswith("req_")


async def test_the_client_does_not_repeat_a_deterministic_conflict(
    sdk: anthropic.AsyncAnthropic, behaviour: Behaviour
) -> None:
    patient = sdk.with_options(max_retries=1)
    behaviour.failure = failing(reasons.ERROR_REASON_CONFLICT)
    with pytest.raises(anthropic.ConflictError):
        await patient.beta.sessions.retrieve(SESSION)
    assert len(behaviour.calls) == 1


async def test_the_client_decodes_frames_of_every_name(
    sdk: anthropic.AsyncAnthropic, behaviour: Behaviour
) -> None:
    types = ["user.message", "session.usage", "session.status_idle", "session.something_new"]
    behaviour.send(*(frame(n, type_) for n, type_ in enumerate(types, start=1)), end=True)
    stream: Any = await sdk.beta.sessions.events.stream(SESSION)
    async with stream:
        assert [event.type async for event in stream] == types


async def test_an_error_event_is_an_exception_of_the_client(
    sdk: anthropic.AsyncAnthropic, behaviour: Behaviour
) -> None:
    behaviour.send(frame(1, "user.message"))
    behaviour.stream.put_nowait(failing(reasons.ERROR_REASON_UNAVAILABLE))
    stream: Any = await sdk.beta.sessions.events.stream(SESSION)
    async with stream:
        assert (await anext(stream)).type == "user.message"
        with pytest.raises(anthropic.APIStatusError) as caught:
            await anext(stream)
    assert caught.value.type == "api_error"


async def test_an_unknown_session_is_not_found_before_any_event(
    sdk: anthropic.AsyncAnthropic, behaviour: Behaviour
) -> None:
    behaviour.failure = failing(reasons.ERROR_REASON_NOT_FOUND)
    with pytest.raises(anthropic.NotFoundError):
        await sdk.beta.sessions.events.stream(SESSION)
