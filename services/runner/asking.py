"""Gets a round's answer from the provider: rows 4 to 7 of the protocol, as attempts."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

import structlog
from counterfoil.context.v1 import context_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2

from foundation import operations
from services.runner import answer as answers
from services.runner import names, publishing
from services.runner.adapter import Answer, MessagesAdapter, Piece, ProviderFailure, UnknownDelta
from services.runner.attempt import Attempt
from services.runner.authorities import Authorities, answered
from services.runner.execution import Interrupted
from services.runner.history import Writer
from services.runner.live import Live
from services.runner.model_calls import ModelCalls
from services.runner.preparing import Preparer, Refused
from services.runner.previews import Previewer
from services.runner.turn import ANSWER, Turn

RECOVERIES_MAX = 3
"""Requests of one round that may be made smaller because the provider refused the one before."""

PROVIDER = "messages"

A = TypeVar("A")

_log = structlog.get_logger("counterfoil.runner")


class _TooLarge(Exception):
    """The provider refused the request of this snapshot as too large."""

    def __init__(self, snapshot_id: str) -> None:
        super().__init__("the provider refused the request as too large")
        self.snapshot_id = snapshot_id


class Asker:
    """Asks the provider on behalf of one turn."""

    def __init__(
        self, authorities: Authorities, adapter: MessagesAdapter, turn: Turn, writer: Writer
    ) -> None:
        self._to = authorities
        self._turn = turn
        self._writer = writer
        self._calls = ModelCalls(authorities, adapter, turn)
        self._preparer = Preparer(authorities, self._calls, turn)

    async def ask(self, round_: int) -> transcript_pb2.Entry:
        """The stored answer of a round: ours, or one that was stored before.

        A request that the provider finds too large is asked again as a smaller one. Raises
        Interrupted, Refused, or ProviderFailure when the provider brought no answer.
        """
        overflowed = ""
        for _ in range(1 + RECOVERIES_MAX):
            try:
                return await self._ask(round_, overflowed)
            except _TooLarge as refused:
                overflowed = refused.snapshot_id
                _log.warning("a request was too large for the provider", snapshot_id=overflowed)
        limit = context_pb2.REFUSAL_REASON_COMPACTION_LIMIT
        raise Refused(context_pb2.Refusal(reason=limit))

    async def _ask(self, round_: int, overflowed: str) -> transcript_pb2.Entry:
        try:
            return await self._attempt(round_, overflowed, stream=True)
        except UnknownDelta:
            # A delta that we cannot assemble exactly: the same request once more, unstreamed.
            return await self._attempt(round_, overflowed, stream=False)

    async def _attempt(self, round_: int, overflowed: str, *, stream: bool) -> transcript_pb2.Entry:
        known, prepared = await self._begin(round_, overflowed, stream=stream)
        try:
            answer = await self._call(known, prepared, stream=stream)
        except Interrupted:
            await self._calls.close(known, known.operation_id)
            raise
        except ProviderFailure as failure:
            await self._calls.fail(known, known.operation_id, failure)
            if failure.kind == "overflow":
                raise _TooLarge(prepared.snapshot.id) from failure
            raise
        return await self._store(known, prepared.snapshot, answer)

    async def _begin(
        self, round_: int, overflowed: str, *, stream: bool
    ) -> tuple[Attempt, context_pb2.PreparedRequest]:
        """Rows 4 and 5; once more as a new attempt if the runner's stream was lost meanwhile."""
        while True:
            known = Attempt.next_of(self._turn, round_)
            await self._turn.attached.wait()
            prepared = await self._preparer.prepare(
                known, stream=stream, overflowed_snapshot_id=overflowed
            )
            await self._start(known, prepared)
            if self._turn.attached.is_set():
                return known, prepared
            await self._calls.close(known, known.operation_id)

    async def _start(self, known: Attempt, prepared: context_pb2.PreparedRequest) -> None:
        """Registers the attempt and starts the call; both are answered before the first byte."""
        turn, compaction_id = self._turn, prepared.compaction_id
        begin = turn_pb2.BeginRoundRequest(
            fence=turn.fence,
            turn_id=turn.id,
            round=known.round,
            attempt=known.attempt,
            span_event_id=known.span_id,
            summary_usage=turn.summary_usage,
        )
        if compaction_id:
            thread_id = turn.thread.thread_id
            begin.compaction_event_id = names.compaction_event(thread_id, compaction_id)
        begun = await _both(
            answered(self._to.turns.BeginRound, begin),
            self._calls.start(known, known.operation_id, prepared.snapshot),
        )
        if begun.interrupted:
            await self._calls.close(known, known.operation_id)
            raise Interrupted
        turn.summary_usage.clear()

    async def _call(
        self, known: Attempt, prepared: context_pb2.PreparedRequest, *, stream: bool
    ) -> Answer:
        """Calls the provider, and shows clients the answer while it comes."""
        previewer = self._previewer(known)
        async with Live(self._to.turns, self._turn.fence, known.span_id) as live:

            def on_piece(piece: Piece) -> None:
                live.add(previewer.add(piece))

            return await self._calls.call(prepared, stream=stream, on_piece=on_piece)

    def _previewer(self, known: Attempt) -> Previewer:
        def event_id(block_index: int) -> str:
            return operations.block_event(self._turn.id, known.round, known.attempt, block_index)

        return Previewer(event_id)

    async def _store(
        self, known: Attempt, snapshot: context_pb2.SnapshotSummary, answer: Answer
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
