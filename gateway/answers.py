"""What a failure looks like over HTTP. Statuses come from the contract's list of reasons alone."""

from typing import NamedTuple

import msgspec
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure, surface_of

Headers = list[tuple[bytes, bytes]]

RETRY_AFTER = "retry_after"
"""Metadata of a failure: seconds after which a repetition makes sense."""

_FIXED = {
    503: "a part of this installation is not reachable at the moment; repeat the request",
    504: "the request took too long",
}
"""Texts of server-side failures: their own ones may name addresses, epochs or stored content."""

_FIXED_OTHERWISE = "internal error; the log has the details under this request id"
_RETRY_AFTER_SECONDS = b"1"
_ENCODER = msgspec.json.Encoder()


class Answer(NamedTuple):
    """A whole response; `content-length` and `request-id` are added when it is sent."""

    status: int
    body: bytes
    headers: Headers


def json_answer(status: int, body: bytes, headers: Headers | None = None) -> Answer:
    """A response with JSON in it."""
    return Answer(status, body, [(b"content-type", b"application/json"), *(headers or [])])


def document(status: int, value: object) -> Answer:
    """A response with a small JSON document."""
    return json_answer(status, _ENCODER.encode(value))


def failure_answer(failure: Failure, request_id: str, headers: Headers | None = None) -> Answer:
    """The response for a failure, with what its reason says about status and repetition."""
    surface = surface_of(failure.reason)
    own = list(headers or [])
    if surface.should_retry:
        own.append((b"x-should-retry", surface.should_retry.encode()))
    if (seconds := failure.metadata.get(RETRY_AFTER)) is not None:
        own.append((b"retry-after", seconds.encode()))
    elif surface.http_status == 503:
        own.append((b"retry-after", _RETRY_AFTER_SECONDS))
    return json_answer(surface.http_status, failure_body(failure, request_id), own)


def failure_body(failure: Failure, request_id: str) -> bytes:
    """The JSON of a failure, also that of an `error` event."""
    surface = surface_of(failure.reason)
    text = failure.text
    if surface.http_status >= 500:
        text = _FIXED.get(surface.http_status, _FIXED_OTHERWISE)
    error: dict[str, object] = {"type": surface.http_type, "message": _printable(text)}
    if surface.error_code:
        error["details"] = {"error_code": surface.error_code}
    return _ENCODER.encode({"type": "error", "error": error, "request_id": request_id})


def unexpected() -> Failure:
    """The failure that stands for a defect of ours."""
    return Failure(reasons.ERROR_REASON_INTERNAL, "internal error")


def _printable(text: str) -> str:
    """A message may repeat what a client sent, but lone surrogates have no UTF-8."""
    return text.encode("utf-8", "replace").decode()
