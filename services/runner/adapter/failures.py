"""What can go wrong with a provider call, and what the public is told about it. Pure.

The HTTP status decides first: a proxy that wraps a 529 in a body of its own must not turn it into
a permanent error. The provider's error type only refines what the status leaves open. No message
holds a byte of the provider's body.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Literal, cast

from counterfoil.types.v1 import usage_pb2

from services.runner.adapter import overflow

Kind = Literal[
    "overloaded",
    "rate_limited",
    "request_failed",
    "billing",
    "overflow",
    "bad_answer",
    "unreachable",
    "timeout",
    "truncated",
    "unknown_delta",
]

_PUBLIC_TYPE: dict[Kind, str] = {
    "overloaded": "model_overloaded_error",
    "rate_limited": "model_rate_limited_error",
    "billing": "billing_error",
}
_FAILED = "model_request_failed_error"

_TEXT: dict[Kind, str] = {
    "overloaded": "The model provider is overloaded",
    "rate_limited": "The model provider limits the rate of requests",
    "request_failed": "The model provider failed",
    "billing": "The model provider refused the request because of billing or missing credit",
    "overflow": "The request is larger than the model provider accepts",
    "timeout": "The model provider gave up on the request",
}
_REFUSED = "The model provider refused the request"
_REFUSED_BY_STATUS = {
    401: "The model provider refused the credential",
    403: "The model provider does not permit the request",
    404: "The model provider does not know the model or the address",
}

_BY_STATUS: dict[int, tuple[Kind, bool]] = {
    402: ("billing", False),
    408: ("timeout", True),
    409: ("request_failed", True),
    413: ("overflow", False),
    429: ("rate_limited", True),
    503: ("overloaded", True),
    504: ("timeout", True),
    529: ("overloaded", True),
}
_BY_TYPE: dict[str, tuple[Kind, bool]] = {
    "billing_error": ("billing", False),
    "overloaded_error": ("overloaded", True),
    "rate_limit_error": ("rate_limited", True),
    "timeout_error": ("timeout", True),
    **dict.fromkeys(overflow.TYPES, ("overflow", False)),
}
_FATAL_TYPES = (
    "authentication_error",
    "invalid_request_error",
    "not_found_error",
    "permission_error",
)
_NO_CREDIT = re.compile(r"credit balance is too low", re.IGNORECASE)


class ProviderFailure(Exception):
    """A provider call brought no answer.

    `message` is public. `retry_after_seconds` is the provider's wish, unbounded. `usage` is what
    the provider had reported before the answer broke off; None when no answer had begun.
    """

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        retryable: bool,
        retry_after_seconds: float | None = None,
        provider_request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.message = message
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        self.provider_request_id = provider_request_id
        self.usage: usage_pb2.ModelUsage | None = None

    @property
    def public_type(self) -> str:
        """The `type` of the `session.error` that reports it."""
        return _PUBLIC_TYPE.get(self.kind, _FAILED)

    def __repr__(self) -> str:
        return f"ProviderFailure({self.kind}, {self.message!r}, retryable={self.retryable})"


class UnknownDelta(ProviderFailure):
    """The stream holds content in a form that we cannot assemble.

    The request is to be repeated once without streaming: whole answers keep what we do not know.
    """

    def __init__(self) -> None:
        message = "The model provider streamed its answer in a form that is not known here."
        super().__init__("unknown_delta", message, retryable=True)


def bad_answer(what: str, *, retryable: bool = True) -> ProviderFailure:
    """An answer that cannot be stored as it is; `what` is ours, never the provider's text."""
    message = f"The model provider's answer could not be used: {what}."
    return ProviderFailure("bad_answer", message, retryable=retryable)


def truncated() -> ProviderFailure:
    """The answer ended before it was complete."""
    message = "The model provider's answer broke off."
    return ProviderFailure("truncated", message, retryable=True)


def endless(seconds: float) -> ProviderFailure:
    """The answer was still coming after so long."""
    message = f"The model provider's answer was not complete after {seconds:g} seconds."
    return ProviderFailure("timeout", message, retryable=True)


def silent(seconds: float) -> ProviderFailure:
    """No byte came for so long."""
    message = f"The model provider sent nothing for {seconds:g} seconds."
    return ProviderFailure("timeout", message, retryable=True)


def unreachable() -> ProviderFailure:
    """No connection, or one that broke before the first byte of an answer."""
    message = "The model provider could not be reached."
    return ProviderFailure("unreachable", message, retryable=True)


def of_response(
    status: int, body: object, headers: Mapping[str, str], *, now: float
) -> ProviderFailure:
    """The failure behind an HTTP answer that is not 2xx.

    `body` is its decoded JSON or anything else; `headers` ignores case; `now` is Unix time, for a
    `retry-after` that is a date.
    """
    type_, text = _type_and_text(body)
    kind, retryable = _decide(status, type_, text)
    wish = headers.get("x-should-retry", "")
    if wish == "false" or (wish == "true" and kind not in ("billing", "overflow")):
        retryable = wish == "true"
    return ProviderFailure(
        kind,
        f"{_words(kind, status)} (HTTP {status}).",
        retryable=retryable,
        retry_after_seconds=retry_after(headers, now),
    )


def of_error_event(body: object) -> ProviderFailure:
    """The failure behind an `error` event inside a stream, or an error body with status 200."""
    type_, text = _type_and_text(body)
    kind, retryable = _refine(type_, text, ("request_failed", type_ not in _FATAL_TYPES))
    words = _REFUSED if kind == "request_failed" and not retryable else _TEXT[kind]
    return ProviderFailure(kind, f"{words} while it answered.", retryable=retryable)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds, at least 0, that the provider asks to wait; None without a readable wish."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        at = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, IndexError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, at.timestamp() - now)


def _decide(status: int, type_: str, text: str) -> tuple[Kind, bool]:
    if found := _BY_STATUS.get(status):
        return found
    if status >= 500:
        return _refine(type_, text, ("request_failed", True))
    if status >= 400:
        return _refine(type_, text, ("request_failed", False))
    return "request_failed", False


def _refine(type_: str, text: str, otherwise: tuple[Kind, bool]) -> tuple[Kind, bool]:
    if found := _BY_TYPE.get(type_):
        return found
    if not otherwise[1] and overflow.says_too_large(text):
        return "overflow", False
    if not otherwise[1] and _NO_CREDIT.search(text):
        return "billing", False
    return otherwise


def _words(kind: Kind, status: int) -> str:
    if kind == "request_failed" and status < 500:
        return _REFUSED_BY_STATUS.get(status, _REFUSED)
    return _TEXT[kind]


def _type_and_text(body: object) -> tuple[str, str]:
    if isinstance(body, str):
        return "", body
    error = cast(Any, body).get("error") if isinstance(body, dict) else None
    found = cast(dict[str, Any], error) if isinstance(error, dict) else {}
    type_, code, text = found.get("type"), found.get("code"), found.get("message")
    if code in overflow.TYPES:
        type_ = code
    return (type_ if isinstance(type_, str) else "", text if isinstance(text, str) else "")
