"""URLs, and where a request for them goes. Pure."""

import re

import httpx2

from foundation.egress.errors import EgressError, Reason
from foundation.egress.hosts import Target, endpoint

URL_CHARS_MAX = 8192
_AUTHORITY = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://([^/?#]*)")
_HOST_AND_PORT = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(:[0-9]{0,5})?")
_PORTS = {"http": 80, "https": 443}


def parse(text: str) -> httpx2.URL:
    """The URL in its normal form: host in lower-case ASCII without a dot behind it, no fragment.

    Raises EgressError for what is no http or https URL, has a user or password, or a host or port
    that programs read in different ways.
    """
    if len(text) > URL_CHARS_MAX:
        raise _bad(f"the URL is longer than {URL_CHARS_MAX} characters")
    if not text.isprintable() or " " in text or "\\" in text:
        raise _bad("the URL holds a space, a backslash or a control character; encode it")
    found = _AUTHORITY.match(text)
    if found is None:
        raise EgressError(Reason.SCHEME, "", "write an absolute URL with http:// or https://")
    authority = found[1]
    if "@" in authority:
        raise _userinfo()
    if not _HOST_AND_PORT.fullmatch(authority):
        raise _bad("host and port cannot be told apart; write host:port")
    try:
        url = httpx2.URL(text)
        if url.raw_host.endswith(b"."):
            url = url.copy_with(host=url.raw_host.decode("ascii").removesuffix("."))
        host = target_of(url).host
        return url.copy_with(host=host, raw_path=url.raw_path, fragment=None)
    except (httpx2.InvalidURL, ValueError):
        raise _bad("the host or the port of the URL is not valid") from None


def target_of(url: httpx2.URL) -> Target:
    """Where a request for this URL goes. Raises EgressError as `parse` does."""
    if url.scheme not in _PORTS:
        raise EgressError(Reason.SCHEME, "", "only http and https URLs are fetched")
    if url.userinfo:
        raise _userinfo()
    port = _PORTS[url.scheme] if url.port is None else url.port
    try:
        return endpoint(url.raw_host.decode("ascii"), port)
    except ValueError as error:
        raise EgressError(Reason.HOST, "", str(error)) from None


def origin_of(url: httpx2.URL) -> tuple[str, Target]:
    """What two URLs share when they belong to one server: scheme, host and port."""
    return url.scheme, target_of(url)


def _bad(message: str) -> EgressError:
    return EgressError(Reason.URL, "", message)


def _userinfo() -> EgressError:
    message = "a URL must not hold a user or password; the operator sets credentials"
    return EgressError(Reason.USERINFO, "", message)
