"""A request that is too large is recognised in every provider's words, and never just repeated."""

import pytest

from services.runner.adapter.failures import of_error_event, of_response
from services.runner.retrying import RetryPolicy

TOO_LARGE = [
    "prompt is too long: 203284 tokens > 200000 maximum",
    "Prompt is too long",
    "Input is too long for requested model.",
    "input length and `max_tokens` exceed context limit: 184915 + 20000 > 204648, decrease input"
    " length or `max_tokens` and try again",
    "messages.1.content.2.image.source.base64: image exceeds 5 MB maximum: 6275800 bytes > 5242880"
    " bytes",
    "messages.7.content.3.image.source.base64.data: At least one of the image dimensions exceed max"
    " allowed size: 8000 pixels",
    "messages.59.content.12.image.source.base64.data: At least one of the image dimensions exceed"
    " max allowed size for many-image requests: 2000 pixels",
    "messages: Too much media: 0 document pages + 104 images > 100",
    "A maximum of 100 PDF pages may be provided.",
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 8202"
    " tokens. Please reduce the length of the messages.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "the request exceeds the available context size. try increasing the context size",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum"
    " context length",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "Please reduce the length of the messages or completion.",
    "Invalid request: Your request exceeded model token limit: 131072",
    "context window exceeds limit (2013)",
    "Context length exceeded",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "`inputs` tokens + `max_new_tokens` must be <= 8193.",
    "Prompt exceeds max length",
]

NOT_TOO_LARGE = [
    "max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens",
    "messages: text content blocks must be non-empty",
    "tools.0.custom.name: String should have at most 128 characters",
    "system: Input should be a valid string",
    "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after",
    "thinking.budget_tokens: Input should be greater than or equal to 1024",
    "This request would exceed your organization's rate limit of 40,000 input tokens per minute",
    "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    "Could not process image",
    "",
]


@pytest.mark.parametrize("text", TOO_LARGE)
@pytest.mark.parametrize("status", [400, 422])
def test_words_of_many_providers(text: str, status: int) -> None:
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": text}}
    failure = of_response(status, body, {}, now=0)
    assert (failure.kind, failure.retryable) == ("overflow", False)
    assert of_response(status, text, {}, now=0).kind == "overflow"
    assert of_error_event(body).kind == "overflow"
    assert text not in str(failure)


@pytest.mark.parametrize("text", NOT_TOO_LARGE)
def test_other_refusals_are_none(text: str) -> None:
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": text}}
    failure = of_response(400, body, {}, now=0)
    assert (failure.kind, failure.retryable) == ("request_failed", False)


@pytest.mark.parametrize("text", TOO_LARGE)
@pytest.mark.parametrize(("status", "kind"), [(429, "rate_limited"), (529, "overloaded")])
def test_a_passing_failure_stays_one_whatever_its_words(text: str, status: int, kind: str) -> None:
    assert of_response(status, {"error": {"message": text}}, {}, now=0).kind == kind


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (413, {}),
        (413, {"type": "request_too_large", "message": "Request exceeds the maximum size"}),
        (400, {"type": "request_too_large"}),
        (400, {"type": "exceed_context_size_error", "code": 400}),
        (400, {"type": "invalid_request_error", "code": "context_length_exceeded"}),
        (400, {"type": "context_length_exceeded"}),
    ],
)
def test_statuses_types_and_codes(status: int, error: dict[str, object]) -> None:
    assert of_response(status, {"error": error}, {}, now=0).kind == "overflow"


@pytest.mark.parametrize("wish", ["true", "false", ""])
def test_it_is_never_repeated_as_it_is(wish: str) -> None:
    failure = of_response(413, {}, {"x-should-retry": wish, "retry-after": "1"}, now=0)
    assert RetryPolicy().wait(failure, 0, 0) is None
