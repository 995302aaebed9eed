"""Ends a turn that does not end by itself: interrupted, failed, or settled after the fact.

Order: journal, then transcript, then ledger. A call is reported as not run only when the journal
says that it never started; answers that clients gave before are kept.
"""

from collections.abc import Sequence

import structlog
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import events_pb2, session_events_pb2, turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import runtime_pb2, usage_pb2

from services.runner import messages, names
from services.runner.adapter import ProviderFailure
from services.runner.authorities import Authorities, GiveUp, answered
from services.runner.execution import Executor
from services.runner.history import Writer
from services.runner.publisher import NO_COMMIT, Publisher
from services.runner.turn import RESULTS, WITHHELD, Turn

_log = structlog.get_logger("counterfoil.runner")


class Closer:
    """Closes one turn."""

    def __init__(
        self,
        authorities: Authorities,
        turn: Turn,
        executor: Executor,
        publisher: Publisher,
        writer: Writer,
    ) -> None:
        self._to = authorities
        self._turn = turn
        self._executor = executor
        self._publisher = publisher
        self._writer = writer

    async def interrupt(self, lost: usage_pb2.ModelUsage | None = None) -> None:
        """Closes what is open and commits the turn as interrupted; `lost` is what a request that
        brought no answer is known to have used."""
        await self._close_open_round(*await self._open_calls())
        await self._commit(turn_pb2.COMMIT_KIND_INTERRUPTED, lost=lost)

    async def settle(self) -> None:
        """Writes the closing entry of a turn that is publicly over; publishes nothing.

        A quarantined turn may have left an answer that nobody published and nobody will: it is
        taken out of the history, so that the model knows what the public knows.
        """
        round_ = self._turn.claim.round
        calls = self._turn.claim.calls
        late = [e for e in self._turn.unpublished() if e.round > round_]
        if late:
            await self._close_unpublished(late)
            content = transcript_pb2.EntryContent(skipped_entry_ids=[e.id for e in late])
            await self._writer.append(names.withheld_entry(self._turn.id), WITHHELD, 0, content)
            self._turn.skip(late)
        if calls and (round_, RESULTS) not in self._turn.entries:
            operations = {op.id: op for op in await self._close_calls(calls)}
            bodies = self._turn.claim.answer_system_bodies
            await self._writer.append_results(round_, calls, operations, bodies)
        await self._commit(turn_pb2.COMMIT_KIND_SETTLED, round_=round_)

    async def _close_unpublished(self, entries: Sequence[transcript_pb2.Entry]) -> None:
        """Calls that were prepared with an answer that nobody will see do not run any more."""
        for entry in entries:
            scope = self._executor.scope(entry.round, entry.attempt)
            names_of_calls = entry.content.mappings
            await self._executor.close(scope, [name.operation_id for name in names_of_calls])

    async def fail(self, error: events_pb2.Event, lost: usage_pb2.ModelUsage | None = None) -> None:
        """Ends the turn with an error; the session stays usable and queued input stays."""
        _log.warning(
            "a turn ends with an error", error_type=error.session_error.error.WhichOneof("error")
        )
        answer = await self._commit(turn_pb2.COMMIT_KIND_DONE, error, lost=lost)
        if answer == turn_pb2.COMMIT_ANSWER_INTERRUPTED:
            await self.interrupt(lost)

    async def end_refused(self, details: session_events_pb2.StopDetails) -> None:
        """Ends the turn with the model's refusal, behind the results of calls that came with it."""
        answer = await self._commit(turn_pb2.COMMIT_KIND_DONE, refusal=details)
        if answer == turn_pb2.COMMIT_ANSWER_INTERRUPTED:
            await self.interrupt()

    async def reschedule(self, error: events_pb2.Event, failure: ProviderFailure, ms: int) -> None:
        """Row 6a: the turn waits without a lease and is offered again."""
        about = {"kind": failure.kind, "wait_ms": ms}
        _log.warning("a provider call failed and will be repeated", **about)
        kind = turn_pb2.COMMIT_KIND_RESCHEDULED
        answer = await self._commit(kind, error, lost=failure.usage, retry_after_ms=ms)
        if answer == turn_pb2.COMMIT_ANSWER_INTERRUPTED:
            await self.interrupt(failure.usage)

    async def withhold(self, rounds: int, error: events_pb2.Event) -> None:
        """Takes the turn out of the history, because no request could hold it, and fails it."""
        ids = [names.input_entry(self._turn.id)]
        for round_ in range(rounds):
            ids += [names.answer_entry(self._turn.id, round_)]
            ids += [names.results_entry(self._turn.id, round_)]
            ids += [names.continue_entry(self._turn.id, round_)]
        if (0, WITHHELD) not in self._turn.entries:
            content = transcript_pb2.EntryContent(skipped_entry_ids=ids)
            await self._writer.append(names.withheld_entry(self._turn.id), WITHHELD, 0, content)
        await self.fail(error)

    async def _open_calls(self) -> tuple[Sequence[turn_pb2.RoundCall], Sequence[bytes]]:
        """Calls of the newest round while their results are not in the transcript, as the ledger
        knows them now, and the system messages that came with answers: what clients gave before
        the interrupt is kept."""
        claim = self._turn.claim
        newest = self._turn.newest_answer()
        if newest is None:
            closed = (claim.round, RESULTS) in self._turn.entries
            return ([], []) if closed else (claim.calls, claim.answer_system_bodies)
        if (newest.round, RESULTS) in self._turn.entries:
            return [], []
        response = await self._publisher.publish(self._publisher.read(newest), NO_COMMIT)
        return response.calls, response.answer_system_bodies

    async def _close_open_round(
        self, calls: Sequence[turn_pb2.RoundCall], system_bodies: Sequence[bytes]
    ) -> None:
        if not calls:
            return
        newest = self._turn.newest_answer()
        round_ = self._turn.claim.round if newest is None else newest.round
        operations = {op.id: op for op in await self._close_calls(calls)}
        await self._writer.append_results(round_, calls, operations, system_bodies)
        await self._publisher.publish_results(calls, operations)

    async def _close_calls(
        self, calls: Sequence[turn_pb2.RoundCall]
    ) -> list[journal_pb2.Operation]:
        newest = self._turn.newest_answer()
        round_ = self._turn.claim.round if newest is None else newest.round
        attempt = self._turn.next_attempt() if newest is None else newest.attempt
        scope = self._executor.scope(round_, attempt)
        answers = [
            (call.operation_id, outcome)
            for call in calls
            if (outcome := _kept_answer(call)) is not None
        ]
        kept = await self._executor.decide(scope, answers)
        rest = [call.operation_id for call in calls if call.operation_id not in kept]
        closed = await self._executor.close(scope, rest)
        found = {**kept, **{operation.id: operation for operation in closed}}
        return [found[call.operation_id] for call in calls]

    async def _commit(
        self,
        kind: "turn_pb2.CommitKind.ValueType",
        error: events_pb2.Event | None = None,
        *,
        refusal: session_events_pb2.StopDetails | None = None,
        round_: int | None = None,
        lost: usage_pb2.ModelUsage | None = None,
        retry_after_ms: int = 0,
    ) -> "turn_pb2.CommitAnswer.ValueType":
        if round_ is None:
            newest = self._turn.newest_answer()
            round_ = self._turn.claim.round if newest is None else newest.round
        request = turn_pb2.CommitTurnRequest(
            fence=self._turn.fence,
            turn_id=self._turn.id,
            round=round_,
            kind=kind,
            entries=self._turn.unrecorded,
            stop_reason=_stop_reason(error, refusal),
            stop_details=refusal,
            errors=[] if error is None else [error],
            retry_after_ms=retry_after_ms,
            lost_usage=lost,
            summary_usage=self._turn.summary_usage,
        )
        response = await answered(self._to.turns.CommitTurn, request)
        self._turn.recorded(request.entries)
        if kind not in _GIVES_WAY and response.answer not in _FINAL:
            raise GiveUp(f"the ledger answered {response.answer} to a closing commit")
        return response.answer


def _stop_reason(
    error: events_pb2.Event | None, refusal: session_events_pb2.StopDetails | None
) -> "session_events_pb2.StopReasonType.ValueType":
    if error is not None:
        return session_events_pb2.STOP_REASON_TYPE_RETRIES_EXHAUSTED
    if refusal is not None:
        return session_events_pb2.STOP_REASON_TYPE_REFUSAL
    return session_events_pb2.STOP_REASON_TYPE_END_TURN


_GIVES_WAY = (turn_pb2.COMMIT_KIND_DONE, turn_pb2.COMMIT_KIND_RESCHEDULED)
"""Commits that an interrupt comes before."""

_FINAL = (turn_pb2.COMMIT_ANSWER_DONE, turn_pb2.COMMIT_ANSWER_SETTLED)


def _kept_answer(call: turn_pb2.RoundCall) -> journal_pb2.Outcome | None:
    """What a client decided before the turn was closed: its answer, or a denial that has no public
    result yet. A closed parked turn has published a result for every other call."""
    if call.state != turn_pb2.CALL_STATE_ANSWERED:
        return None
    if call.owner == runtime_pb2.TOOL_OWNER_CLIENT_CUSTOM:
        return messages.answer_outcome(call.answer_body)
    return None if call.result_event_id else messages.denial(call.answer_body)
