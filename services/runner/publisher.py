"""Makes stored answers and results public: rows 8, 9 and 11. Everything here may be repeated."""

from collections.abc import Sequence

from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import runtime_pb2

from services.runner import names, publishing
from services.runner.authorities import Authorities, answered
from services.runner.execution import Executor
from services.runner.publishing import Round
from services.runner.turn import ANSWER, Turn

_WITH_ANSWERS = (turn_pb2.COMMIT_ANSWER_CONTINUE, turn_pb2.COMMIT_ANSWER_INTERRUPTED)
NO_COMMIT = turn_pb2.COMMIT_KIND_UNSPECIFIED


class Publisher:
    """Publishes for one turn."""

    def __init__(self, authorities: Authorities, turn: Turn, executor: Executor) -> None:
        self._to = authorities
        self._turn = turn
        self._executor = executor

    def read(self, entry: transcript_pb2.Entry) -> Round:
        """The round that a stored answer holds."""
        return publishing.read_round(entry, self._turn.id, self._turn.claim.runtime)

    async def publish_unrecorded(self) -> None:
        """What is in the transcript gets published, before anything else: every entry that the
        ledger has not recorded, in order."""
        for entry in self._turn.unpublished():
            if entry.kind == ANSWER:
                await self.publish(self.read(entry), NO_COMMIT)
            else:
                await self._publish_results(entry)

    async def publish(
        self, round_: Round, commit: "turn_pb2.CommitKind.ValueType"
    ) -> turn_pb2.AppendRoundResponse:
        """Rows 8 and 9. The provider call is completed first: any later owner may do that, and the
        round's calls are prepared with it."""
        await self._complete_model_call(round_)
        turn = self._turn
        request = turn_pb2.AppendRoundRequest(
            fence=turn.fence,
            turn_id=turn.id,
            round=round_.number,
            attempt=round_.attempt,
            entries=turn.unrecorded_through(round_.seq),
            answer_entry_id=round_.entry_id,
            answer_digest=round_.digest,
            events=publishing.events(round_, turn.id),
            calls=[judged.call for judged in round_.calls],
            usage=round_.usage,
            commit=commit,
            stop_reason=publishing.stop_reason_of(round_),
            stop_details=round_.refusal,
            span_event_id=names.span_event(turn.id, round_.number, round_.attempt),
        )
        response = await answered(self._to.turns.AppendRound, request)
        turn.recorded(request.entries)
        if response.answer in _WITH_ANSWERS:
            turn.vouch_for(response.log_point)
        return response

    async def _complete_model_call(self, round_: Round) -> None:
        request = journal_pb2.CompleteModelCallRequest(
            fence=self._turn.fence,
            scope=self._executor.scope(round_.number, round_.attempt),
            operation_id=round_.operation_id,
            outcome=journal_pb2.MODEL_CALL_OUTCOME_ANSWERED,
            answer_digest=round_.digest,
            calls=publishing.new_operations(round_),
        )
        await answered(self._to.journal.CompleteModelCall, request)

    async def _publish_results(self, entry: transcript_pb2.Entry) -> None:
        """Row 11 for a results entry that was stored by an owner who died before publishing it."""
        calls = await self._calls_of(entry)
        request = journal_pb2.GetOperationsRequest(
            thread=self._turn.thread,
            operation_ids=[result.operation_id for result in entry.content.results],
        )
        known = await answered(self._to.journal.GetOperations, request)
        operations = {operation.id: operation for operation in known.operations}
        await self.publish_results(calls, operations, through=entry.seq)

    async def _calls_of(self, entry: transcript_pb2.Entry) -> Sequence[turn_pb2.RoundCall]:
        answer = self._turn.entries.get((entry.round, ANSWER))
        if answer is None or entry.round == self._turn.claim.round:
            return list(self._turn.claim.calls)
        return [judged.call for judged in self.read(answer).calls]

    async def publish_results(
        self,
        calls: Sequence[turn_pb2.RoundCall],
        operations: "dict[str, journal_pb2.Operation]",
        *,
        through: int | None = None,
    ) -> None:
        """Publishes the results that are not public yet, and records the entries so far, or those
        up to `through`."""
        ended = [
            (call, operations[call.operation_id])
            for call in calls
            if not _answered_by_client(call) and call.operation_id in operations
        ]
        await self._executor.publish(ended, through=through)


def _answered_by_client(call: turn_pb2.RoundCall) -> bool:
    """The client's own event is the public result."""
    return (
        call.owner == runtime_pb2.TOOL_OWNER_CLIENT_CUSTOM
        and call.state == turn_pb2.CALL_STATE_ANSWERED
    )
