"""Has the context authority prepare an attempt's request, and brings what it needs for that: the
provider's exact count, or a summary that a model wrote."""

import structlog
from counterfoil.context.v1 import context_pb2

from services.runner.adapter import Answer, ProviderFailure
from services.runner.answer import text_of
from services.runner.attempt import Attempt
from services.runner.authorities import Authorities, GiveUp, answered
from services.runner.execution import Interrupted
from services.runner.model_calls import ModelCalls
from services.runner.turn import Turn

SUMMARY_SECONDS_MAX = 300
"""Time for a summary; without one in time the extractive summary is used."""

_STEPS_MAX = 8
_TEXT_CHARS_MAX = 262_144
_COMPLETE = ("end_turn", "stop_sequence")

_log = structlog.get_logger("counterfoil.runner")


class Refused(Exception):
    """The request does not fit the model's window."""

    def __init__(self, refusal: context_pb2.Refusal) -> None:
        super().__init__("the request does not fit the model's window")
        self.refusal = refusal


class Preparer:
    """Prepares the requests of one turn."""

    def __init__(self, authorities: Authorities, calls: ModelCalls, turn: Turn) -> None:
        self._to = authorities
        self._calls = calls
        self._turn = turn

    async def prepare(
        self, known: Attempt, *, stream: bool, overflowed_snapshot_id: str
    ) -> context_pb2.PreparedRequest:
        """Row 4. `overflowed_snapshot_id` is the round's newest request that the provider refused
        as too large.

        Raises Interrupted, Refused, and GiveUp when the authority keeps asking.
        """
        turn = self._turn
        request = context_pb2.PrepareRequestRequest(
            fence=turn.fence,
            turn_id=turn.id,
            round=known.round,
            attempt=known.attempt,
            transcript_head=turn.head,
            runtime=turn.claim.runtime,
            stream=stream,
            known_results=turn.known_results,
            overflowed_snapshot_id=overflowed_snapshot_id,
        )
        turn.known_results = []
        for _ in range(_STEPS_MAX):
            response = await answered(self._to.context.PrepareRequest, request)
            match response.WhichOneof("result"):
                case "prepared":
                    return response.prepared
                case "count_needed":
                    request.count.CopyFrom(await self._count(response.count_needed))
                case "summary_needed" if response.summary_needed.plan_id != request.summary.plan_id:
                    request.summary.CopyFrom(await self._summary(known, response.summary_needed))
                case "refused":
                    raise Refused(response.refused)
                case _:
                    break
        raise GiveUp("the context authority asked again for what it was given")

    async def _count(self, needed: context_pb2.CountNeeded) -> context_pb2.TokenCount:
        tokens = await self._calls.count(needed)
        return context_pb2.TokenCount(body_digest=needed.body_digest, input_tokens=tokens)

    async def _summary(
        self, known: Attempt, needed: context_pb2.SummaryNeeded
    ) -> context_pb2.ModelSummary:
        """What a model writes; without text when it wrote nothing that is complete."""
        operation_id = known.summary_id(needed.plan_id)
        summary = context_pb2.ModelSummary(plan_id=needed.plan_id, operation_id=operation_id)
        await self._turn.attached.wait()
        await self._calls.start(known, operation_id, needed.request.snapshot)
        if not self._turn.attached.is_set():
            await self._calls.close(known, operation_id)
            return summary
        try:
            answer = await self._calls.call(
                needed.request, stream=False, seconds=SUMMARY_SECONDS_MAX
            )
        except Interrupted:
            await self._calls.close(known, operation_id)
            raise
        except ProviderFailure as failure:
            _log.warning("a summary was not written", kind=failure.kind)
            await self._calls.fail(known, operation_id, failure)
            if failure.usage is not None:
                self._turn.summary_usage.append(failure.usage)
            return summary
        summary.text = _complete_text(answer)
        self._turn.summary_usage.append(answer.usage)
        await self._calls.complete_summary(known, operation_id, summary.text)
        return summary


def _complete_text(answer: Answer) -> str:
    """The text of an answer that came to its own end; empty for another one."""
    text = text_of(answer.blocks) if answer.stop_reason in _COMPLETE else ""
    return text if len(text) <= _TEXT_CHARS_MAX else ""
