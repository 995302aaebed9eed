"""`advance`: drives one claimed turn as far as it goes. Row numbers are those of the turn
protocol."""

from collections.abc import Sequence

from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import runtime_pb2

from services.runner import answer as answers
from services.runner import faults, messages, publishing, stops
from services.runner.adapter import MessagesAdapter, ProviderFailure
from services.runner.asking import Asker
from services.runner.authorities import Authorities, Conflict, GiveUp, answered
from services.runner.closing import Closer
from services.runner.copying import copy_history
from services.runner.execution import Executor, Interrupted
from services.runner.history import Writer
from services.runner.notes import Notes
from services.runner.preparing import Refused
from services.runner.publisher import Publisher
from services.runner.publishing import Round
from services.runner.recovery import Recovery
from services.runner.retrying import RetryPolicy, spread_of
from services.runner.stops import Then
from services.runner.turn import ANSWER, RESULTS, WITHHELD, Turn

ROUNDS_MAX = 100
"""Rounds of one turn; then it ends with `tool_use_limit_reached_error`."""

_CONFLICTS_MAX = 12

PARKED = turn_pb2.COMMIT_ANSWER_PARKED
DONE = turn_pb2.COMMIT_ANSWER_DONE
CONTINUE = turn_pb2.COMMIT_ANSWER_CONTINUE
INTERRUPTED = turn_pb2.COMMIT_ANSWER_INTERRUPTED


async def advance(
    authorities: Authorities, adapter: MessagesAdapter, turn: Turn, policy: RetryPolicy
) -> None:
    """Drives the turn until the ledger answers a commit that ends the claim.

    Raises GiveUp (Stopped, Unanswered, Corrupt) when the claim ends without one.
    """
    if turn.claim.HasField("fork"):
        await copy_history(authorities, turn)
        return
    owner = Owner(authorities, adapter, turn, policy)
    if turn.claim.takeover or turn.claim.retries:
        await owner.fence()
    for _ in range(_CONFLICTS_MAX):
        try:
            await owner.drive()
            return
        except Conflict:
            # Another owner's write came first: from here on this one reads like a takeover.
            await owner.fence()
    raise GiveUp("the transcript's head kept moving")


class Owner:
    """Everything that one claim does."""

    def __init__(
        self,
        authorities: Authorities,
        adapter: MessagesAdapter,
        turn: Turn,
        policy: RetryPolicy,
    ) -> None:
        self._to = authorities
        self._turn = turn
        self._claim = turn.claim
        self._policy = policy
        self._round = max(0, turn.claim.round)
        self._recovery = Recovery(authorities, turn)
        self._executor = Executor(authorities, turn)
        self._publisher = Publisher(authorities, turn, self._executor)
        self._writer = Writer(authorities, turn)
        self._notes = Notes(authorities, turn, self._writer)
        self._asker = Asker(authorities, adapter, turn, self._writer)
        self._closer = Closer(authorities, turn, self._executor, self._publisher, self._writer)

    async def fence(self) -> None:
        """Refuses older owners, then reads what they left."""
        await self._recovery.fence()

    async def drive(self) -> None:
        """From what is stored to the end of the claim."""
        await self._notes.append()
        await self._writer.append_input()
        if self._claim.state == turn_pb2.TURN_STATE_SETTLING:
            await self._closer.settle()
            return
        await self._publisher.publish_unrecorded()
        try:
            await self._go_round()
        except Interrupted:
            await self._closer.interrupt()
        except Refused as refused:
            error = faults.refused(self._turn, refused.refusal)
            await self._closer.withhold(self._round, error)
        except ProviderFailure as failure:
            await self._after_failure(failure)

    async def _after_failure(self, failure: ProviderFailure) -> None:
        """Row 6a, or the end of the turn when no retry is left or none would help."""
        turn = self._turn
        retries = self._claim.retries if self._round == self._claim.round + 1 else 0
        wait_ms = self._policy.wait(failure, retries, spread_of(turn.id, self._claim.epoch))
        error = faults.provider_failed(turn, failure, retrying=wait_ms is not None)
        if wait_ms is None:
            await self._closer.fail(error, failure.usage)
        else:
            await self._closer.reschedule(error, failure, wait_ms)

    async def _go_round(self) -> None:
        if (0, WITHHELD) in self._turn.entries:
            # An owner took the turn out of the history and died before its commit.
            await self._closer.withhold(self._round, faults.withheld(self._turn))
            return
        next_round = await self._resume()
        while next_round is not None:
            self._round = next_round
            if next_round >= ROUNDS_MAX:
                await self._closer.fail(faults.too_many_rounds(self._turn, ROUNDS_MAX))
                return
            if self._turn.interrupt.is_set():
                raise Interrupted
            entry = await self._asker.ask(next_round)
            next_round = await self._after_answer(entry)

    async def _resume(self) -> int | None:
        """The next round to ask for; None when the claim ended on the way."""
        newest = self._turn.newest_answer()
        if newest is not None:
            if (newest.round, RESULTS) in self._turn.entries:
                return await self._after_results(newest.round)
            return await self._after_answer(newest)
        if not self._claim.calls:
            return self._claim.round + 1
        # A clean claim after parking: everything that is needed came with it.
        scope = self._executor.scope(self._claim.round, self._turn.next_attempt())
        return await self._after_answers(scope, self._claim.calls, self._claim.answer_system_bodies)

    async def _after_answer(self, entry: transcript_pb2.Entry) -> int | None:
        """Rows 8 to 14 for a stored answer; the next round, or None when the claim ended."""
        round_ = self._publisher.read(entry)
        row = stops.row_before(self._turn.entries, round_.number)
        then = stops.after_answer(round_.stop_reason, has_calls=bool(round_.calls), row=row)
        response = await self._publisher.publish(round_, publishing.commit_of(round_, then))
        if response.answer in (PARKED, DONE):
            return None
        if response.answer == INTERRUPTED:
            raise Interrupted
        if then is not Then.RESULTS:
            return await self._follow(round_.number, then)
        scope = self._executor.scope(round_.number, round_.attempt)
        if response.answer == CONTINUE:
            return await self._after_answers(scope, response.calls, response.answer_system_bodies)
        return await self._execute(round_, scope)

    async def _follow(self, number: int, then: Then) -> int | None:
        """What a published round is followed by; the next round, or None when the turn ended."""
        match then:
            case Then.FAIL_PAUSED:
                error = faults.paused_too_often(self._turn, stops.PAUSES_MAX)
                await self._closer.fail(error)
            case Then.FAIL_CUT:
                await self._closer.fail(faults.cut_too_often(self._turn, stops.CUTS_MAX))
            case Then.FAIL_FULL:
                await self._closer.withhold(number + 1, faults.window_full(self._turn))
            case Then.END_REFUSED:
                envelope = self._turn.entries[(number, ANSWER)].content.envelope
                await self._closer.end_refused(answers.stop_details_of(envelope))
            case _:
                if then is Then.CONTINUE:
                    await self._writer.append_continue(number)
                return number + 1
        return None

    async def _after_results(self, number: int) -> int | None:
        """What follows the results of a round; one that was parked can only be asked on."""
        entry = self._turn.entries.get((number, ANSWER))
        if entry is None:
            return number + 1
        stop_reason = answers.stop_reason_of(entry.content.envelope)
        return await self._follow(number, stops.after_results(stop_reason))

    async def _execute(self, round_: Round, scope: journal_pb2.RoundScope) -> int | None:
        """Rows 10 to 12: what needs no client, then parking for what does."""
        await self._refuse(round_, scope)
        runnable = [
            (judged.call, judged.input, judged.tool_version)
            for judged in round_.calls
            if judged.executable
        ]
        await self._executor.run_all(scope, runnable)
        if not any(judged.waits_for_client for judged in round_.calls):
            return await self._after_answers(scope, [judged.call for judged in round_.calls], ())
        return await self._park(scope)

    async def _park(self, scope: journal_pb2.RoundScope) -> int | None:
        request = turn_pb2.CommitTurnRequest(
            fence=self._turn.fence,
            turn_id=self._turn.id,
            round=scope.round,
            kind=turn_pb2.COMMIT_KIND_PARKED,
            entries=self._turn.unrecorded,
        )
        response = await answered(self._to.turns.CommitTurn, request)
        self._turn.recorded(request.entries)
        if response.answer == PARKED:
            return None
        self._turn.vouch_for(response.log_point)
        if response.answer == INTERRUPTED:
            raise Interrupted
        return await self._after_answers(scope, response.calls, response.answer_system_bodies)

    async def _refuse(self, round_: Round, scope: journal_pb2.RoundScope) -> None:
        """Calls that cannot be made get error results: the model's mistakes are its own to fix."""
        refused = [judged for judged in round_.calls if judged.refusal]
        outcomes = [
            (judged.call.operation_id, messages.error_outcome(judged.refusal)) for judged in refused
        ]
        done = await self._executor.decide(scope, outcomes)
        await self._executor.publish(
            [(judged.call, done[judged.call.operation_id]) for judged in refused]
        )

    async def _after_answers(
        self,
        scope: journal_pb2.RoundScope,
        calls: Sequence[turn_pb2.RoundCall],
        system_bodies: Sequence[bytes],
    ) -> int | None:
        """Rows 13 and 14: every call of the round has an answer; results enter the history."""
        known = await self._settle_answers(scope, calls)
        missing = [call.operation_id for call in calls if call.operation_id not in known]
        if missing:
            request = journal_pb2.GetOperationsRequest(
                thread=self._turn.thread, operation_ids=missing
            )
            found = await answered(self._to.journal.GetOperations, request)
            known |= {operation.id: operation for operation in found.operations}
        await self._writer.append_results(scope.round, calls, known, system_bodies)
        return await self._after_results(scope.round)

    async def _settle_answers(
        self, scope: journal_pb2.RoundScope, calls: Sequence[turn_pb2.RoundCall]
    ) -> dict[str, journal_pb2.Operation]:
        """Answers and denials become outcomes in one commit; then allowed calls run. The operations
        that ended so, by id."""
        outcomes: list[tuple[str, journal_pb2.Outcome]] = []
        denied: list[turn_pb2.RoundCall] = []
        allowed: list[turn_pb2.RoundCall] = []
        for call in calls:
            if call.state != turn_pb2.CALL_STATE_ANSWERED:
                continue
            if call.owner == runtime_pb2.TOOL_OWNER_CLIENT_CUSTOM:
                outcomes.append((call.operation_id, messages.answer_outcome(call.answer_body)))
            elif (denial := messages.denial(call.answer_body)) is not None:
                outcomes.append((call.operation_id, denial))
                denied.append(call)
            else:
                allowed.append(call)
        done = await self._executor.decide(scope, outcomes)
        await self._executor.publish([(call, done[call.operation_id]) for call in denied])
        return done | await self._run_allowed(scope, allowed)

    async def _run_allowed(
        self, scope: journal_pb2.RoundScope, allowed: Sequence[turn_pb2.RoundCall]
    ) -> dict[str, journal_pb2.Operation]:
        if not allowed:
            return {}
        inputs = await self._recovery.inputs_of(scope.round)
        versions = {tool.name: tool.version for tool in self._claim.runtime.tools}
        runnable = [
            (call, inputs[call.block_index], versions.get(call.name, "")) for call in allowed
        ]
        return await self._executor.run_all(scope, runnable)
