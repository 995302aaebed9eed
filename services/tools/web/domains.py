"""Which hosts a web tool may reach, by its configuration. Pure."""

from collections.abc import Sequence

import httpx2

from foundation.egress.targets import parse, target_of


def permits(url: httpx2.URL, allowed: Sequence[str], blocked: Sequence[str]) -> bool:
    """Tell whether the URL's host may be fetched.

    A domain stands for itself and all its subdomains. With `allowed` nothing else is permitted;
    `blocked` wins over it.
    """
    host = target_of(url).host
    if any(_is_below(host, domain) for domain in blocked):
        return False
    return not allowed or any(_is_below(host, domain) for domain in allowed)


def _is_below(host: str, domain: str) -> bool:
    name = _normal(domain)
    return host == name or host.endswith(f".{name}")


def _normal(domain: str) -> str:
    """The domain as hosts of URLs are written; as it is where it could not be one."""
    try:
        return target_of(parse(f"https://{domain}/")).host
    except httpx2.TransportError:
        return domain.lower()
