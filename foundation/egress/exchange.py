"""A whole exchange: a request, its redirects, one answer."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2

from foundation.egress.errors import EgressError, Reason
from foundation.egress.redirects import Hop, follow, is_redirect
from foundation.egress.targets import target_of
from foundation.egress.transport import DEADLINE, GuardedTransport


@dataclass(frozen=True, slots=True)
class Answer:
    """What the last server said."""

    status: int
    headers: httpx2.Headers
    urls: tuple[httpx2.URL, ...]
    """Every URL that was asked, in order: the last one answered."""
    chunks: AsyncIterator[bytes]
    """The body, decompressed, within the limits. Raises EgressError."""

    async def read(self) -> bytes:
        """The whole body. Raises EgressError."""
        return b"".join([chunk async for chunk in self.chunks])


@asynccontextmanager
async def exchange(
    transport: GuardedTransport, hop: Hop, check: Callable[[httpx2.URL], None] = lambda _: None
) -> AsyncGenerator[Answer]:
    """Sends a request and follows its redirects, each judged as the first.

    `check` may raise an EgressError for the first URL, and for any that it redirects to. No cookie
    is kept from one to the next, and the total time is that of all together. Raises EgressError;
    an answer with an error's status is an answer.
    """
    limits = transport.limits
    deadline = None
    if limits.total_seconds is not None:
        deadline = asyncio.get_running_loop().time() + limits.total_seconds
    urls = [hop.url]
    while True:
        response = await _send(transport, hop, deadline, check, is_first=len(urls) == 1)
        try:
            location = response.headers.get("location")
            if location is None or not is_redirect(response.status_code, location):
                yield _answer(response, urls)
                return
            if len(urls) > limits.redirects_max:
                host = str(target_of(hop.url))
                message = f"it redirects more than {limits.redirects_max} times"
                raise EgressError(Reason.REDIRECT, host, message)
            hop = follow(hop, response.status_code, location)
            urls.append(hop.url)
        finally:
            await response.aclose()


async def _send(
    transport: GuardedTransport,
    hop: Hop,
    deadline: float | None,
    check: Callable[[httpx2.URL], None],
    *,
    is_first: bool,
) -> httpx2.Response:
    request = httpx2.Request(
        hop.method,
        hop.url,
        headers=dict(hop.headers),
        content=hop.content,
        extensions={DEADLINE: deadline},
    )
    try:
        check(hop.url)
        return await transport.handle_async_request(request)
    except EgressError as error:
        error.is_sent = error.is_sent or not is_first
        raise


def _answer(response: httpx2.Response, urls: list[httpx2.URL]) -> Answer:
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    chunks = aiter(response.stream)
    return Answer(response.status_code, response.headers, tuple(urls), chunks)
