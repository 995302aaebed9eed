"""Why a request did not go out, or its answer was not taken."""

from collections.abc import Iterator
from enum import StrEnum
from typing import cast

import httpx2


class Reason(StrEnum):
    """What stopped an exchange."""

    URL = "url"
    """No URL that every program reads in the same way."""
    SCHEME = "scheme"
    USERINFO = "userinfo"
    HOST = "host"
    PORT = "port"
    ADDRESS = "address"
    """The host is, or resolves to, an address that is not public."""
    DOMAIN = "domain"
    """What sends the request is not meant for this host."""
    UNRESOLVED = "unresolved"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    CONNECT_TIMEOUT = "connect_timeout"
    TIMEOUT = "timeout"
    """The answer took too long, as a whole or between two bytes."""
    BROKEN = "broken"
    """The connection ended in the middle."""
    PROTOCOL = "protocol"
    """What came is no HTTP answer, or its headers are too large."""
    REDIRECT = "redirect"
    TOO_LARGE = "too_large"
    COMPRESSION = "compression"
    """The body expands too much, is damaged, or is compressed in a way that we did not ask for."""
    MEDIA_TYPE = "media_type"


_BEFORE_SENDING = frozenset(
    {
        Reason.URL,
        Reason.SCHEME,
        Reason.USERINFO,
        Reason.HOST,
        Reason.PORT,
        Reason.ADDRESS,
        Reason.DOMAIN,
        Reason.UNRESOLVED,
        Reason.UNREACHABLE,
        Reason.TLS,
        Reason.CONNECT_TIMEOUT,
    }
)
_TRANSIENT = frozenset(
    {
        Reason.UNRESOLVED,
        Reason.UNREACHABLE,
        Reason.CONNECT_TIMEOUT,
        Reason.TIMEOUT,
        Reason.BROKEN,
    }
)


class EgressError(httpx2.TransportError):
    """An exchange failed, or was refused. Its text is for people, and for a model.

    It names the host and what to do, never a path, a query, a header, a body or an address that
    a name resolved to. `is_sent` is False when certainly no byte of the request went out: then it
    had no effect.
    """

    def __init__(
        self, reason: Reason, host: str, message: str, *, is_sent: bool | None = None
    ) -> None:
        super().__init__(f"{host}: {message}" if host else message)
        self.reason = reason
        self.host = host
        """`host:port`; empty when there is no readable one."""
        self.is_sent = reason not in _BEFORE_SENDING if is_sent is None else is_sent

    @property
    def is_transient(self) -> bool:
        """Whether the same request may well succeed later."""
        return self.reason in _TRANSIENT


def egress_error_in(error: BaseException) -> EgressError | None:
    """The first `EgressError` in an exception, its causes or the members of its groups.

    Libraries with task groups (the MCP SDK) wrap what a request raises.
    """
    return next(_found(error, set()), None)


def _found(error: BaseException | None, seen: set[int]) -> Iterator[EgressError]:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    if isinstance(error, EgressError):
        yield error
    if isinstance(error, BaseExceptionGroup):
        for member in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _found(member, seen)
    yield from _found(error.__cause__, seen)
    yield from _found(error.__context__, seen)
