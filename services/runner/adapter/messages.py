"""The Messages API: exact request bytes out, an exact answer in, live pieces on the way."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import msgspec

from services.runner.adapter.assemble import Answer, Assembly, Piece, whole
from services.runner.adapter.failures import ProviderFailure
from services.runner.adapter.frames import Frames
from services.runner.adapter.transport import Auth, Response, Transport

_WHOLE_SECONDS = 600.0
_REST_SECONDS = 0.25
_COUNT_SECONDS = 10.0
_INLINE_BYTES_MAX = 256 * 1024


class MessagesAdapter:
    """Speaks to one provider endpoint; one per process, shared by all turns."""

    def __init__(
        self, base_url: str, api_key: str, auth: Auth = "x-api-key", *, idle_seconds: float = 90.0
    ) -> None:
        """`base_url` is without `/v1`; `idle_seconds` is the longest silence within a stream.

        Made inside the event loop that uses it. Raises ValueError when the address or the key
        cannot be used.
        """
        self._transport = Transport(base_url, api_key, auth)
        self._idle_seconds = idle_seconds

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

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
        response = await self._transport.open(body, patience, betas)
        request_id = response.request_id
        assembly = Assembly(request_id)
        try:
            if response.is_stream:
                await _follow(response, assembly, on_piece)
                return await _finish(assembly.answer, response.size)
            read = await response.rest()
            return await _finish(lambda: whole(read, request_id), len(read))
        except ProviderFailure as failure:
            failure.provider_request_id = request_id
            failure.usage = assembly.usage()
            raise
        finally:
            response.close()

    async def count_tokens(self, body: bytes, betas: Sequence[str] = ()) -> int | None:
        """How many input tokens the provider counts in this body, exact bytes.

        None when it does not say so in a few seconds, for whatever reason: the caller can do
        without. Cancelling it closes the connection at once.
        """
        try:
            async with asyncio.timeout(_COUNT_SECONDS):
                response = await self._transport.open(body, _COUNT_SECONDS, betas, counting=True)
                try:
                    read = await response.rest()
                finally:
                    response.close()
            counted = _COUNTED.decode(read).input_tokens
        except (ProviderFailure, TimeoutError, msgspec.DecodeError):
            return None
        return counted if counted > 0 else None


class _Counted(msgspec.Struct):
    input_tokens: int


_COUNTED = msgspec.json.Decoder(_Counted)


async def _follow(
    response: Response, assembly: Assembly, on_piece: Callable[[Piece], None]
) -> None:
    frames = Frames()
    while not assembly.complete and (some := await response.some()):
        for event, data in frames.feed(some):
            # Nothing to anybody, but proxies send it to keep a connection busy.
            if event is None and not data:
                continue
            for piece in assembly.feed(event, data):
                on_piece(piece)
    if not response.ended:
        await _drain(response)


async def _drain(response: Response) -> None:
    """A body that is read to its end leaves the connection usable; the answer is here anyway."""
    with contextlib.suppress(ProviderFailure, TimeoutError):
        async with asyncio.timeout(_REST_SECONDS):
            while await response.some():
                pass


async def _finish(make: Callable[[], Answer], size: int) -> Answer:
    """Large answers are put together in a thread: checking them takes milliseconds."""
    return make() if size <= _INLINE_BYTES_MAX else await asyncio.to_thread(make)
