"""Carries out the calls of a published round and publishes each result when it is there.

A started call is never started again: after a broken connection or a takeover its owner asks the
journal, waits until the executor must have ended, and then declares it ambiguous.
"""

import asyncio
import time
from collections.abc import Sequence

import structlog
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.tools.v1 import tools_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import reference_pb2

from foundation.errors import Failure, name_of
from services.runner import messages
from services.runner.authorities import Authorities, GiveUp, Stopped, Unanswered, answered
from services.runner.turn import Turn

PARALLEL_MAX = 16
"""Calls of one round that run at the same time."""

_WAIT_STEP_SECONDS = 0.25
_EXECUTE_SLACK_SECONDS = 10.0
_EXECUTE_SECONDS_MAX = 24 * 3600.0
_MAY_PASS = (reasons.ERROR_REASON_UNAVAILABLE, reasons.ERROR_REASON_DEADLINE_EXCEEDED)

_log = structlog.get_logger("counterfoil.runner")

PREPARED = journal_pb2.OPERATION_STATE_PREPARED
STARTED = journal_pb2.OPERATION_STATE_STARTED
RECEIVED = journal_pb2.OPERATION_STATE_RECEIVED
AMBIGUOUS = journal_pb2.OPERATION_STATE_AMBIGUOUS
ENDED = (
    journal_pb2.OPERATION_STATE_COMPLETED,
    AMBIGUOUS,
    journal_pb2.OPERATION_STATE_ABANDONED,
)


class Interrupted(Exception):
    """An interrupt waits: the turn is closed instead of continued."""


class Executor:
    """Executes platform calls of one turn."""

    def __init__(self, authorities: Authorities, turn: Turn) -> None:
        self._to = authorities
        self._turn = turn
        self._slots = asyncio.Semaphore(PARALLEL_MAX)

    def scope(self, round_: int, attempt: reference_pb2.Attempt) -> journal_pb2.RoundScope:
        """How the journal names a round of this turn."""
        return journal_pb2.RoundScope(turn_id=self._turn.id, round=round_, attempt=attempt)

    async def run_all(
        self,
        scope: journal_pb2.RoundScope,
        calls: Sequence[tuple[turn_pb2.RoundCall, bytes, str]],
    ) -> dict[str, journal_pb2.Operation]:
        """Runs calls (with input and tool version) side by side and publishes each result.

        Returns the ended operations by id. Raises Interrupted when an interrupt comes first: what
        runs goes on in its executor, and closing decides how it is reported.
        """
        if not calls:
            return {}
        if self._turn.interrupt.is_set():
            raise Interrupted
        running = [
            asyncio.create_task(self._run_and_publish(scope, call, input_, version))
            for call, input_, version in calls
        ]
        interrupt = asyncio.create_task(self._turn.interrupt.wait())
        try:
            waiting: set[asyncio.Task[journal_pb2.Operation]] = set(running)
            while waiting:
                done, _ = await asyncio.wait(
                    {*waiting, interrupt}, return_when=asyncio.FIRST_COMPLETED
                )
                if interrupt in done:
                    raise Interrupted
                for task in waiting & done:
                    task.result()
                waiting -= done
            return {task.result().id: task.result() for task in running}
        finally:
            interrupt.cancel()
            for task in running:
                task.cancel()
            await asyncio.gather(interrupt, *running, return_exceptions=True)

    async def _run_and_publish(
        self,
        scope: journal_pb2.RoundScope,
        call: turn_pb2.RoundCall,
        input_: bytes,
        version: str,
    ) -> journal_pb2.Operation:
        async with self._slots:
            operation = await self._run(scope, call, input_, version)
        await self.publish([(call, operation)])
        return operation

    async def _run(
        self,
        scope: journal_pb2.RoundScope,
        call: turn_pb2.RoundCall,
        input_: bytes,
        version: str,
    ) -> journal_pb2.Operation:
        operation = await self.look(call.operation_id)
        failure: Failure | None = None
        if operation is not None and operation.state == PREPARED:
            failure = await self._execute(call, input_, version)
            operation = await self.look(call.operation_id)
        if operation is None:
            raise GiveUp(f"{call.operation_id} was never prepared")
        while operation.state == STARTED and _seconds_left(operation) > 0:
            await asyncio.sleep(min(_WAIT_STEP_SECONDS, _seconds_left(operation)))
            operation = await self.look(call.operation_id) or operation
        if operation.state == PREPARED:
            raise _not_started(call.operation_id, failure)
        if operation.state not in ENDED:
            (operation,) = await self.close(scope, [call.operation_id])
        return operation

    async def _execute(
        self, call: turn_pb2.RoundCall, input_: bytes, version: str
    ) -> Failure | None:
        """One Execute call, never repeated. Its failure, if any, only says why a call that the
        journal knows as not started was not."""
        await self._turn.attached.wait()
        request = tools_pb2.ExecuteRequest(
            fence=self._turn.fence,
            operation_id=call.operation_id,
            tool_name=call.name,
            tool_version=version,
            input=input_,
        )
        try:
            await self._to.tools.Execute(request, timeout=self._seconds_max(call.name, version))
        except Failure as failure:
            if failure.reason in (reasons.ERROR_REASON_FENCED, reasons.ERROR_REASON_DELETED):
                raise Stopped(failure.text) from failure
            _log.warning(
                "platform call not answered",
                operation_id=call.operation_id,
                reason=name_of(failure.reason),
            )
            return failure
        return None

    def _seconds_max(self, name: str, version: str) -> float:
        """After so long no executor can be running: the tool's own time as pinned, and slack."""
        for tool in self._turn.claim.runtime.tools:
            if (tool.name, tool.version) == (name, version) and tool.deadline_ms:
                return tool.deadline_ms / 1000 + _EXECUTE_SLACK_SECONDS
        return _EXECUTE_SECONDS_MAX

    async def look(self, operation_id: str) -> journal_pb2.Operation | None:
        """The operation as it stands; None when the journal does not know it."""
        request = journal_pb2.GetOperationsRequest(
            thread=self._turn.thread, operation_ids=[operation_id]
        )
        found = await answered(self._to.journal.GetOperations, request)
        return found.operations[0] if found.operations else None

    async def close(
        self, scope: journal_pb2.RoundScope, operation_ids: Sequence[str]
    ) -> list[journal_pb2.Operation]:
        """Closes calls; returns them as they stand then, in the same order."""
        if not operation_ids:
            return []
        request = journal_pb2.CloseOperationsRequest(
            fence=self._turn.fence,
            scope=scope,
            operation_ids=operation_ids,
            kind=journal_pb2.OPERATION_KIND_TOOL_CALL,
        )
        closed = (await answered(self._to.journal.CloseOperations, request)).operations
        if any(operation.state == AMBIGUOUS for operation in closed):
            self._turn.may_end_late = True
        return list(closed)

    async def decide(
        self,
        scope: journal_pb2.RoundScope,
        outcomes: Sequence[tuple[str, journal_pb2.Outcome]],
    ) -> dict[str, journal_pb2.Operation]:
        """Turns answers, denials and refusals into outcomes, all in one commit; by operation id."""
        if not outcomes:
            return {}
        request = journal_pb2.CompleteClientCallsRequest(
            fence=self._turn.fence,
            scope=scope,
            answers=[
                journal_pb2.ClientAnswer(operation_id=id_, outcome=outcome)
                for id_, outcome in outcomes
            ],
        )
        done = await answered(self._to.journal.CompleteClientCalls, request)
        return {operation.id: operation for operation in done.operations}

    async def publish(
        self,
        ended: Sequence[tuple[turn_pb2.RoundCall, journal_pb2.Operation]],
        *,
        through: int | None = None,
    ) -> None:
        """Publishes results that are not public yet, each once, with the entries so far (up to
        `through`, when an owner makes good what another one left)."""
        turn = self._turn
        results = [
            turn_pb2.CallResult(
                operation_id=call.operation_id,
                event=messages.result_event(call, operation.projection.body),
            )
            for call, operation in ended
            if not call.result_event_id
        ]
        entries = turn.unrecorded if through is None else turn.unrecorded_through(through)
        if not results and not entries:
            return
        request = turn_pb2.AppendProgressRequest(
            fence=self._turn.fence,
            turn_id=self._turn.id,
            results=results,
            entries=entries,
        )
        response = await answered(self._to.turns.AppendProgress, request)
        turn.recorded(request.entries)
        for call, _ in ended:
            call.result_event_id = call.result_event_id or "published"
        if response.interrupted:
            self._turn.interrupt.set()


def _not_started(operation_id: str, failure: Failure | None) -> GiveUp:
    """Why a call is still prepared after Execute. What may pass waits for a later claim; anything
    else would be the same for every owner, and counts towards quarantine."""
    if failure is None or failure.reason in _MAY_PASS:
        return Unanswered(f"{operation_id} could not be started")
    return GiveUp(f"{operation_id} could not be started: {name_of(failure.reason)}")


def _seconds_left(operation: journal_pb2.Operation) -> float:
    """Seconds until no executor can be running any more, by the wall clock."""
    deadline = operation.deadline_at.seconds + operation.deadline_at.nanos / 1e9
    return deadline + _EXECUTE_SLACK_SECONDS - time.time()
