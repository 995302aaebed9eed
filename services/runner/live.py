"""Sends the previews of one answer while it comes."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from counterfoil.ledger.v1 import turn_pb2, turn_pb2_grpc
from counterfoil.types.v1 import reference_pb2

from foundation.errors import Failure

_BATCH_MAX = 1000
_CALL_SECONDS = 5


class Live:
    """Sends previews in order, many at a time, without ever holding up the answer.

    What comes at once is sent together, and an answer that is whole by then is not previewed.
    """

    def __init__(
        self, turns: turn_pb2_grpc.TurnServiceStub, fence: reference_pb2.Fence, span_id: str
    ) -> None:
        self._turns = turns
        self._fence = fence
        self._span_id = span_id
        self._waiting: list[turn_pb2.Preview] = []
        self._soon: asyncio.Handle | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, previews: Sequence[turn_pb2.Preview]) -> None:
        """Queues previews."""
        if previews and not self._waiting and self._task is None:
            self._soon = asyncio.get_running_loop().call_soon(self._begin)
        self._waiting.extend(previews)

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_BATCH_MAX], self._waiting[_BATCH_MAX:]
            request = turn_pb2.PublishPreviewsRequest(
                fence=self._fence, span_event_id=self._span_id, previews=batch
            )
            # Previews are ephemeral: a lost batch only means that a client sees the text later.
            with suppress(Failure):
                await self._turns.PublishPreviews(request, timeout=_CALL_SECONDS)
        self._task = None

    async def __aenter__(self) -> "Live":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._soon is not None:
            self._soon.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
