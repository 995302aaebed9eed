"""One attempt to get a round's answer from the provider: rows 4 to 7 of the protocol."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from counterfoil.context.v1 import context_pb2
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import reference_pb2

from services.runner import answer as answers
from services.runner import names, observed, publishing
from services.runner.adapter import (
    Answer,
    MessagesAdapter,
    Piece,
    ProviderFailure,
    UnknownDelta,
    endless,
)
from services.runner.authorities import Authorities, answered
from services.runner.execution import Interrupted
from services.runner.history import Writer
from services.runner.live import Live
from services.runner.previews import Previewer
from services.runner.turn import ANSWER, Turn

MODEL_CALL_SECONDS_MAX = 3600
"""Deadline of one provider call; silence ends it much earlier."""

PROVIDER = "messages"

A = TypeVar("A")


class Refused(Exception):
    """The request does not fit the model's window."""

    def __init__(self, refusal: context_pb2.Refusal) -> None:
        super().__init__("the request does not fit the model's window")
        self.refusal = refusal


@dataclass(frozen=True)
class _Attempt:
    """What one attempt is known by."""

    round: int
    attempt: reference_pb2.Attempt
    operation_id: str
    span_id: str

    def scope(self, turn_id: str) -> journal_pb2.RoundScope:
        return journal_pb2.RoundScope(turn_id=turn_id, round=self.round, attempt=self.attempt)


class Asker:
    """Asks the provider on behalf of one turn."""

    def __init__(
        self, authorities: Authorities, adapter: MessagesAdapter, turn: Turn, writer: Writer
    ) -> None:
        self._to = authorities
        self._adapter = adapter
        self._turn = turn
        self._writer = writer

    async def ask(self, round_: int) -> transcript_pb2.Entry:
        """The stored answer of a round: ours, or one that was stored before.

        Raises Interrupted, Refused, or ProviderFailure when the provider brought no answer.
        """
        try:
            return await self._attempt(round_, stream=True)
        except UnknownDelta:
            # A delta that we cannot assemble exactly: the same request once more, unstreamed.
            return await self._attempt(round_, stream=False)

    async def _attempt(self, round_: int, *, stream: bool) -> transcript_pb2.Entry:
        known, prepared = await self._begin(round_, stream)
        try:
            answer = await self._call(known, prepared, stream)
        except Interrupted:
            await self._close(known)
            raise
        except ProviderFailure as failure:
            await self._fail(known, failure)
            raise
        return await self._store(known, prepared.snapshot, answer)

    async def _begin(
        self, round_: int, stream: bool
    ) -> tuple[_Attempt, context_pb2.PreparedRequest]:
        """Rows 4 and 5; once more as a new attempt if the runner's stream was lost meanwhile."""
        while True:
            attempt = self._turn.next_attempt()
            known = _Attempt(
                round_,
                attempt,
                names.model_operation(self._turn.id, round_, attempt),
                names.span_event(self._turn.id, round_, attempt),
            )
            await self._turn.attached.wait()
            prepared = await self._prepare(known, stream)
            await self._start(known, prepared.snapshot)
            if self._turn.attached.is_set():
                return known, prepared
            await self._close(known)

    async def _prepare(self, known: _Attempt, stream: bool) -> context_pb2.PreparedRequest:
        request = context_pb2.PrepareRequestRequest(
            fence=self._turn.fence,
            turn_id=self._turn.id,
            round=known.round,
            attempt=known.attempt,
            transcript_head=self._turn.head,
            runtime=self._turn.claim.runtime,
            stream=stream,
            known_results=self._turn.known_results,
        )
        self._turn.known_results = []
        response = await answered(self._to.context.PrepareRequest, request)
        if response.WhichOneof("result") == "refused":
            raise Refused(response.refused)
        return response.prepared

    async def _start(self, known: _Attempt, snapshot: context_pb2.SnapshotSummary) -> None:
        """Registers the attempt and starts the call; both are answered before the first byte."""
        begin = turn_pb2.BeginRoundRequest(
            fence=self._turn.fence,
            turn_id=self._turn.id,
            round=known.round,
            attempt=known.attempt,
            span_event_id=known.span_id,
        )
        start = journal_pb2.StartModelCallRequest(
            fence=self._turn.fence,
            scope=known.scope(self._turn.id),
            operation_id=known.operation_id,
            nonce=os.urandom(32),
            deadline_ms=MODEL_CALL_SECONDS_MAX * 1000,
            request_digest=snapshot.request_digest,
            snapshot_id=snapshot.id,
        )
        begun = await _both(
            answered(self._to.turns.BeginRound, begin),
            answered(self._to.journal.StartModelCall, start),
        )
        if begun.interrupted:
            await self._close(known)
            raise Interrupted

    async def _call(
        self, known: _Attempt, prepared: context_pb2.PreparedRequest, stream: bool
    ) -> Answer:
        """Calls the provider until it answers or an interrupt comes."""
        previewer = self._previewer(known)
        async with Live(self._to.turns, self._turn.fence, known.span_id) as live:

            def on_piece(piece: Piece) -> None:
                live.add(previewer.add(piece))

            called = self._bounded_call(prepared, stream, on_piece)
            return await observed.call(self._turn, called)

    async def _bounded_call(
        self,
        prepared: context_pb2.PreparedRequest,
        stream: bool,
        on_piece: Callable[[Piece], None],
    ) -> Answer:
        """The provider call until an interrupt, which ends its time, or until its deadline: a
        stream that trickles is never silent."""
        limit, interrupt = asyncio.timeout(MODEL_CALL_SECONDS_MAX), self._turn.interrupt
        if interrupt.is_set():
            raise Interrupted

        def end() -> None:
            if not limit.expired():
                limit.reschedule(0)

        try:
            async with limit:
                with interrupt.telling(end):
                    return await self._adapter.call(
                        prepared.body, stream=stream, on_piece=on_piece, betas=prepared.betas
                    )
        except Exception:
            if not limit.expired():
                raise
            if interrupt.is_set():
                raise Interrupted from None
            raise endless(MODEL_CALL_SECONDS_MAX) from None

    def _previewer(self, known: _Attempt) -> Previewer:
        def event_id(block_index: int) -> str:
            return names.block_event(self._turn.id, known.round, known.attempt, block_index)

        return Previewer(event_id)

    async def _store(
        self, known: _Attempt, snapshot: context_pb2.SnapshotSummary, answer: Answer
    ) -> transcript_pb2.Entry:
        """Row 7: the answer is stored before anything of it is used."""
        runtime = self._turn.claim.runtime
        calls = answers.calls_of(answer.blocks)
        content = transcript_pb2.EntryContent(
            blocks=answer.blocks,
            envelope=answer.envelope,
            provider_request_id=answer.provider_request_id,
            provider=PROVIDER,
            model=runtime.model,
            profile=runtime.profile,
            tool_versions={tool.name: tool.version for tool in runtime.tools},
            operation_id=known.operation_id,
            snapshot_id=snapshot.id,
            mappings=publishing.mappings(calls, self._turn.id, known.round, known.attempt),
        )
        entry_id = names.answer_entry(self._turn.id, known.round)
        return await self._writer.append(
            entry_id, ANSWER, known.round, content, attempt=known.attempt
        )

    async def _close(self, known: _Attempt) -> None:
        request = journal_pb2.CloseOperationsRequest(
            fence=self._turn.fence,
            scope=known.scope(self._turn.id),
            operation_ids=[known.operation_id],
            kind=journal_pb2.OPERATION_KIND_MODEL_CALL,
        )
        await answered(self._to.journal.CloseOperations, request)

    async def _fail(self, known: _Attempt, failure: ProviderFailure) -> None:
        request = journal_pb2.CompleteModelCallRequest(
            fence=self._turn.fence,
            scope=known.scope(self._turn.id),
            operation_id=known.operation_id,
            outcome=journal_pb2.MODEL_CALL_OUTCOME_FAILED,
            failure=failure.kind,
        )
        await answered(self._to.journal.CompleteModelCall, request)


async def _both(first: Coroutine[Any, Any, A], second: Awaitable[object]) -> A:
    """The first result, when both are there; both are awaited to their end before the first failure
    is raised, because an unanswered write may not be passed over."""
    beside = asyncio.create_task(first)
    try:
        await second
    except asyncio.CancelledError:
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)
        raise
    except Exception:
        await beside
        raise
    return await beside
