"""What a redirect makes of a request. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

import httpx2

from foundation.egress.errors import EgressError, Reason
from foundation.egress.targets import origin_of, parse, target_of

_STATUSES = frozenset({301, 302, 303, 307, 308})
_KEEP_METHOD = frozenset({307, 308})
_FOR_EVERYBODY = frozenset({"accept", "accept-language", "user-agent"})
"""Headers that another server may see; all others were meant for the first one."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One request of an exchange."""

    method: str
    url: httpx2.URL
    headers: Mapping[str, str]
    """Names in lower case."""
    content: bytes | None = None


def is_redirect(status: int, location: str | None) -> bool:
    """Tell whether an answer sends us elsewhere."""
    return status in _STATUSES and location is not None


def follow(hop: Hop, status: int, location: str) -> Hop:
    """The request behind a redirect; its host is not judged yet.

    Another scheme, host or port is another server: it gets none of the headers that were written
    for the first (credentials, cookies, ids of sessions), and never a body. Raises EgressError for
    a way back from https to http, and for a body that would have to be sent to another server.
    """
    host = str(target_of(hop.url))
    try:
        url = parse(str(hop.url.join(location)))
    except (httpx2.InvalidURL, EgressError, ValueError):
        raise _refused(host, "it redirects to what is no http or https URL of a host") from None
    if hop.url.scheme == "https" and url.scheme == "http":
        raise _refused(host, "it redirects from https to http; ask for an https URL")
    keeps = status in _KEEP_METHOD or hop.method in ("GET", "HEAD")
    content = hop.content if keeps else None
    headers = dict(hop.headers)
    if not keeps:
        headers = {name: headers[name] for name in headers if not name.startswith("content-")}
    if origin_of(url) != origin_of(hop.url):
        if content is not None:
            raise _refused(host, "it redirects a request with a body to another server")
        headers = {name: headers[name] for name in headers if name in _FOR_EVERYBODY}
    return Hop(hop.method if keeps else "GET", url, headers, content)


def _refused(host: str, message: str) -> EgressError:
    return EgressError(Reason.REDIRECT, host, message)
