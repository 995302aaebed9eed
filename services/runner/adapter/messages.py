"""The Messages API: exact request bytes out, an exact answer in, live pieces on the way."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from services.runner.adapter.assemble import Answer, Assembly, Piece, whole

if TYPE_CHECKING:
    import httpx2

_WHOLE_SECONDS = 600.0
_REST_SECONDS = 0.25
_INLINE_BYTES_MAX = 256 * 1024


class MessagesAdapter:
    """Speaks to one provider endpoint; one per process, shared by all turns."""

    def __init__(
        self,
        base_url: str,
        api_key: str,
        auth: Literal["x-api-key", "bearer"] = "x-api-key",
        *,
        idle_seconds: float = 90.0,
    ) -> None:
        """`base_url` is without `/v1`; `idle_seconds` is the longest silence within a stream.

        Use `create` inside an event loop: the first one imports the client, which takes a second.
        """
        from services.runner.adapter import transport

        self._use = transport
        self._client = self._use.Transport(base_url, api_key, auth)
        self._idle_seconds = idle_seconds

    @classmethod
    async def create(
        cls,
        base_url: str,
        api_key: str,
        auth: Literal["x-api-key", "bearer"] = "x-api-key",
        *,
        idle_seconds: float = 90.0,
    ) -> "MessagesAdapter":
        """The same without holding up the event loop."""
        return await asyncio.to_thread(cls, base_url, api_key, auth, idle_seconds=idle_seconds)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def call(
        self,
        body: bytes,
        *,
        stream: bool,
        on_piece: Callable[[Piece], None],
        betas: Sequence[str] = (),
    ) -> Answer:
        """Make one request, once; the bytes of `body` arrive as they are, `betas` as a header.

        `stream` says what the body asks for: a stream must never be silent for longer than
        `idle_seconds`, a whole answer may take ten minutes and gives no pieces. Raises UnknownDelta
        (repeat once without streaming) and other ProviderFailure. Cancelling it closes the
        connection at once.
        """
        patience = self._idle_seconds if stream else max(_WHOLE_SECONDS, self._idle_seconds)
        response = await self._client.open(body, patience, betas)
        request_id = self._use.request_id_of(response)
        assembly = Assembly(request_id)
        try:
            if self._use.is_stream(response):
                await self._follow(response, assembly, on_piece)
                return await _finish(assembly.answer, response.num_bytes_downloaded)
            read = await response.aread()
            return await _finish(lambda: whole(read, request_id), len(read))
        except Exception as error:
            failure = self._use.failure_of(error, patience, begun=True)
            failure.provider_request_id = request_id
            failure.usage = assembly.usage()
            if failure is error:
                raise
            raise failure from error
        finally:
            await response.aclose()

    async def _follow(
        self, response: "httpx2.Response", assembly: Assembly, on_piece: Callable[[Piece], None]
    ) -> None:
        frames = self._use.frames(response)
        async for event, data in frames:
            for piece in assembly.feed(event, data):
                on_piece(piece)
            if assembly.complete:
                break
        # A body that is read to its end leaves the connection usable; the answer is here anyway.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_REST_SECONDS):
                async for _ in frames:
                    pass


async def _finish(make: Callable[[], Answer], size: int) -> Answer:
    """Large answers are put together in a thread: checking them takes milliseconds."""
    return make() if size <= _INLINE_BYTES_MAX else await asyncio.to_thread(make)
