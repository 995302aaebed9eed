"""Provider calls in the journal, and the calls themselves: both bounded, both ended by an
interrupt."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TypeVar

from counterfoil.context.v1 import context_pb2
from counterfoil.journal.v1 import journal_pb2

from services.runner import observed
from services.runner.adapter import Answer, MessagesAdapter, Piece, ProviderFailure, endless
from services.runner.attempt import Attempt
from services.runner.authorities import Authorities, answered
from services.runner.execution import Interrupted
from services.runner.turn import Turn

SECONDS_MAX = 3600
"""Deadline of one provider call; silence ends it much earlier."""

T = TypeVar("T")


def unseen(_: Piece) -> None:
    """Nobody watches the answer while it comes."""


class ModelCalls:
    """Provider calls of one turn."""

    def __init__(self, authorities: Authorities, adapter: MessagesAdapter, turn: Turn) -> None:
        self._to = authorities
        self._adapter = adapter
        self._turn = turn

    async def start(
        self, known: Attempt, operation_id: str, snapshot: context_pb2.SnapshotSummary
    ) -> None:
        """Records the call as started, before its first byte."""
        request = journal_pb2.StartModelCallRequest(
            fence=self._turn.fence,
            scope=known.scope,
            operation_id=operation_id,
            nonce=os.urandom(32),
            deadline_ms=SECONDS_MAX * 1000,
            request_digest=snapshot.request_digest,
            snapshot_id=snapshot.id,
        )
        await answered(self._to.journal.StartModelCall, request)

    async def call(
        self,
        prepared: context_pb2.PreparedRequest,
        *,
        stream: bool,
        on_piece: Callable[[Piece], None] = unseen,
        seconds: float | None = None,
    ) -> Answer:
        """Calls the provider until it answers or an interrupt comes.

        Raises Interrupted, or ProviderFailure.
        """

        async def ask() -> Answer:
            return await self._adapter.call(
                prepared.body, stream=stream, on_piece=on_piece, betas=prepared.betas
            )

        return await observed.call(self._turn, self._bounded(ask, seconds or SECONDS_MAX))

    async def count(self, needed: context_pb2.CountNeeded) -> int:
        """Input tokens as the provider counts them; 0 when it does not say. Raises Interrupted."""

        async def ask() -> int | None:
            return await self._adapter.count_tokens(needed.body, needed.betas)

        return await self._bounded(ask, SECONDS_MAX) or 0

    async def close(self, known: Attempt, operation_id: str) -> None:
        """The call's end is not known: it will not be waited for."""
        request = journal_pb2.CloseOperationsRequest(
            fence=self._turn.fence,
            scope=known.scope,
            operation_ids=[operation_id],
            kind=journal_pb2.OPERATION_KIND_MODEL_CALL,
        )
        await answered(self._to.journal.CloseOperations, request)

    async def fail(self, known: Attempt, operation_id: str, failure: ProviderFailure) -> None:
        """The call brought no answer."""
        request = journal_pb2.CompleteModelCallRequest(
            fence=self._turn.fence,
            scope=known.scope,
            operation_id=operation_id,
            outcome=journal_pb2.MODEL_CALL_OUTCOME_FAILED,
            failure=failure.kind,
        )
        await answered(self._to.journal.CompleteModelCall, request)

    async def complete_summary(self, known: Attempt, operation_id: str, text: str) -> None:
        """The call brought a summary, which is no entry of the history."""
        request = journal_pb2.CompleteModelCallRequest(
            fence=self._turn.fence,
            scope=known.scope,
            operation_id=operation_id,
            outcome=journal_pb2.MODEL_CALL_OUTCOME_ANSWERED,
            answer_digest=sha256(text.encode()).digest(),
        )
        await answered(self._to.journal.CompleteModelCall, request)

    async def _bounded(self, ask: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Until an interrupt, which ends its time, or its deadline: a stream that trickles is never
        silent."""
        limit, interrupt = asyncio.timeout(seconds), self._turn.interrupt
        if interrupt.is_set():
            raise Interrupted

        def end() -> None:
            if not limit.expired():
                limit.reschedule(0)

        try:
            async with limit:
                with interrupt.telling(end):
                    return await ask()
        except Exception:
            if not limit.expired():
                raise
            if interrupt.is_set():
                raise Interrupted from None
            raise endless(seconds) from None
