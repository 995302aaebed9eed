"""One page through the egress guard: fetched, judged, read."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import httpx2

from foundation.egress.errors import EgressError, Reason
from foundation.egress.exchange import exchange
from foundation.egress.limits import Limits
from foundation.egress.redirects import Hop
from foundation.egress.targets import parse, target_of
from foundation.egress.transport import GuardedTransport
from services.tools.web.domains import permits
from services.tools.web.extracting import MEDIA_TYPES, extract

LIMITS = Limits(media_types=MEDIA_TYPES)
"""For the transport that pages are read over."""

_HEADERS = {"accept": ", ".join(MEDIA_TYPES), "user-agent": "counterfoil-web-fetch"}


class PageFailed(Exception):
    """The page's server answered with an error. The text names the status, nothing it wrote."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page's text, and the proof of where it came from."""

    urls: tuple[str, ...]
    """The URL that was asked for, and each that it redirected to; the last one answered."""
    media_type: str
    body_bytes: int
    body_sha256: bytes
    """Of the body as it came, decompressed: what the text was made of."""
    title: str
    text: str


class PageReader:
    """Reads pages over one transport of a guard."""

    def __init__(self, transport: GuardedTransport) -> None:
        """`transport` is one with `LIMITS`."""
        self._transport = transport

    async def read(
        self, url: str, *, allowed: Sequence[str] = (), blocked: Sequence[str] = ()
    ) -> Page:
        """The page at `url`, and nowhere outside the tool's domains, also by redirect.

        Raises EgressError, PageFailed, and NoText for a page without text.
        """

        def check(one: httpx2.URL) -> None:
            if not permits(one, allowed, blocked):
                message = "the tool's configuration does not permit this domain"
                raise EgressError(Reason.DOMAIN, str(target_of(one)), message)

        hop = Hop("GET", parse(url), _HEADERS)
        async with exchange(self._transport, hop, check) as answer:
            if answer.status != 200:
                host = target_of(answer.urls[-1])
                raise PageFailed(f"{host}: the server answered with status {answer.status}")
            body = await answer.read()
            kind, charset = _media_type(answer.headers)
            urls = tuple(map(str, answer.urls))
        found = await extract(kind, charset, body, urls[-1])
        digest = hashlib.sha256(body).digest()
        return Page(urls, kind, len(body), digest, found.title, found.text)


def _media_type(headers: httpx2.Headers) -> tuple[str, str]:
    """The type of a body and its charset, both in lower case; empty for none."""
    kind, _, rest = headers.get("content-type", "").lower().partition(";")
    parameters = [part.partition("=") for part in rest.split(";")]
    charsets = [value.strip(' "') for name, _, value in parameters if name.strip() == "charset"]
    return kind.strip(), charsets[0] if charsets else ""
