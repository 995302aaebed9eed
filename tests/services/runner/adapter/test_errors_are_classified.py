"""The status decides first; the public text names what happened and nothing of the provider's."""

from collections.abc import Mapping

import pytest

from services.runner.adapter.failures import ProviderFailure, of_response, retry_after
from services.runner.adapter.messages import MessagesAdapter
from tests.services.runner.adapter.support import ask

TOO_LONG = "prompt is too long: 210000 tokens > 200000 maximum"
POOR = "Your credit balance is too low to access the API."

TABLE: list[tuple[int, str, str, str, bool]] = [
    (400, "invalid_request_error", "messages: bad", "request_failed", False),
    (400, "invalid_request_error", TOO_LONG, "overflow", False),
    (400, "request_too_large", "", "overflow", False),
    (400, "invalid_request_error", POOR, "billing", False),
    (401, "authentication_error", "sk-secret", "request_failed", False),
    (402, "billing_error", "", "billing", False),
    (403, "permission_error", "", "request_failed", False),
    (404, "not_found_error", "model: x", "request_failed", False),
    (408, "", "", "timeout", True),
    (409, "conflict_error", "", "request_failed", True),
    (413, "request_too_large", "", "overflow", False),
    (422, "", "", "request_failed", False),
    (429, "rate_limit_error", "", "rate_limited", True),
    (500, "api_error", "", "request_failed", True),
    (500, "overloaded_error", "", "overloaded", True),
    (502, "", "", "request_failed", True),
    (503, "", "", "overloaded", True),
    (504, "timeout_error", "", "timeout", True),
    (529, "overloaded_error", "", "overloaded", True),
    # A proxy with words of its own does not make an overload permanent.
    (529, "invalid_request_error", TOO_LONG, "overloaded", True),
    (429, "billing_error", "", "rate_limited", True),
    (302, "", "", "request_failed", False),
]


def classified(
    status: int, type_: str = "", text: str = "", headers: Mapping[str, str] | None = None
) -> ProviderFailure:
    body = {"type": "error", "error": {"type": type_, "message": text}}
    return of_response(status, body, headers or {}, now=0)


@pytest.mark.parametrize(("status", "type_", "text", "kind", "retryable"), TABLE)
def test_status_first(status: int, type_: str, text: str, kind: str, retryable: bool) -> None:
    failure = classified(status, type_, text)
    assert failure.kind == kind
    assert failure.retryable is retryable
    assert f"(HTTP {status})" in failure.message
    assert not text or text not in failure.message


@pytest.mark.parametrize("body", [None, "<html>Bad gateway</html>", [], {"error": "no"}, {}, 5])
def test_foreign_bodies_leave_the_status_to_decide(body: object) -> None:
    assert of_response(529, body, {}, now=0).kind == "overloaded"
    assert of_response(502, body, {}, now=0).retryable
    assert not of_response(400, body, {}, now=0).retryable


def test_public_types_are_the_contract_s() -> None:
    assert classified(529).public_type == "model_overloaded_error"
    assert classified(429).public_type == "model_rate_limited_error"
    assert classified(402).public_type == "billing_error"
    assert classified(500).public_type == "model_request_failed_error"
    assert classified(413).public_type == "model_request_failed_error"


def test_the_provider_s_word_on_retries_counts() -> None:
    assert not classified(529, headers={"x-should-retry": "false"}).retryable
    assert classified(400, headers={"x-should-retry": "true"}).retryable
    assert not classified(413, headers={"x-should-retry": "true"}).retryable


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 60),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=40) == seconds


@pytest.mark.parametrize("stream", [True, False])
async def test_errors_over_a_socket(adapter: MessagesAdapter, stream: bool) -> None:
    error = {"status": 429, "message": "sk-secret", "retry_after": 3}
    with pytest.raises(ProviderFailure) as caught:
        await ask(adapter, {"error": error}, stream=stream)
    failure = caught.value
    assert (failure.kind, failure.retry_after_seconds) == ("rate_limited", 3)
    assert failure.provider_request_id.startswith("req_")
    assert "sk-secret" not in str(failure)


@pytest.mark.parametrize("overflow", [413, 400])
async def test_overflow_over_a_socket(adapter: MessagesAdapter, overflow: int) -> None:
    with pytest.raises(ProviderFailure) as caught:
        await ask(adapter, {"overflow": overflow})
    assert caught.value.kind == "overflow"


async def test_a_proxy_s_page_over_a_socket(adapter: MessagesAdapter) -> None:
    with pytest.raises(ProviderFailure) as caught:
        await ask(adapter, {"error": {"status": 502, "body": "<html>Bad gateway</html>"}})
    assert (caught.value.kind, caught.value.retryable) == ("request_failed", True)
    assert caught.value.message == "The model provider failed (HTTP 502)."
