"""The API's error shape, and the one exception that carries it."""

import msgspec

TYPE_BY_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
MESSAGE_BY_STATUS = {
    413: "Request exceeds the maximum size",
    429: "This request would exceed the rate limit for your organization.",
    500: "Internal server error",
    504: "Request timed out",
    529: "Overloaded",
}


class ApiError(Exception):
    """An answer that is an error: HTTP status, error type, message and extra headers."""

    def __init__(
        self,
        status: int,
        message: str | None = None,
        *,
        type: str | None = None,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> None:
        self.status = status
        self.type = type or TYPE_BY_STATUS.get(status, "api_error")
        self.message = message or MESSAGE_BY_STATUS.get(status, self.type)
        self.headers = headers or {}
        self.body = body
        super().__init__(f"{status} {self.type}: {self.message}")

    def body_bytes(self, request_id: str) -> bytes:
        """The JSON body, or the literal body that a script asked for."""
        if self.body is not None:
            return self.body
        return error_body(self.type, self.message, request_id)


def error_body(type: str, message: str, request_id: str) -> bytes:
    """The JSON of an error, as a response body and as the data of an ``error`` event."""
    return msgspec.json.encode(
        {
            "type": "error",
            "error": {"type": type, "message": message},
            "request_id": request_id,
        }
    )


def invalid(message: str) -> ApiError:
    """400 ``invalid_request_error``."""
    return ApiError(400, message)
