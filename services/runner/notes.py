"""Tells the model about calls that finished after history had reported them as interrupted.

What was said stays as it was: the real outcome comes as a note at the tail of history, once,
before the input of a new turn. The order (append, then confirm to the journal) makes repeats
harmless: an entry is named by its operation, and the first append decides its words.
"""

from collections.abc import Sequence

from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from foundation.operations import note_entry
from services.runner import messages
from services.runner.authorities import Authorities, answered
from services.runner.history import Writer
from services.runner.turn import INPUT, NOTE, Turn


class Notes:
    """Appends notes for one turn."""

    def __init__(self, authorities: Authorities, turn: Turn, writer: Writer) -> None:
        self._to = authorities
        self._turn = turn
        self._writer = writer

    async def append(self) -> None:
        """Before row 3 of a new turn; does nothing inside one."""
        claim = self._turn.claim
        is_new = claim.round < 0 and (0, INPUT) not in self._turn.entries
        is_settling = claim.state == turn_pb2.TURN_STATE_SETTLING
        if not is_new or is_settling or not self._turn.may_end_late:
            return
        while late := await self._late():
            for outcome in late:
                await self._append(outcome)
            request = journal_pb2.NoteLateOutcomesRequest(
                fence=self._turn.fence,
                operation_ids=[outcome.operation_id for outcome in late],
            )
            await answered(self._to.journal.NoteLateOutcomes, request)

    async def _late(self) -> Sequence[journal_pb2.LateOutcome]:
        request = journal_pb2.ListLateOutcomesRequest(thread=self._turn.thread)
        return (await answered(self._to.journal.ListLateOutcomes, request)).late_outcomes

    async def _append(self, late: journal_pb2.LateOutcome) -> None:
        provider_id = await self._provider_id(late.operation_id)
        block = messages.late_note(late.tool_name, provider_id, late.projection.body)
        content = transcript_pb2.EntryContent(blocks=[block])
        await self._writer.append(note_entry(late.operation_id), NOTE, 0, content)

    async def _provider_id(self, operation_id: str) -> str:
        """What the model called the call; empty where the transcript does not know it."""
        request = transcript_pb2.ResolveMappingRequest(
            thread=self._turn.thread, operation_id=operation_id
        )
        try:
            found = await answered(self._to.transcript.ResolveMapping, request)
        except Failure as failure:
            if failure.reason != reasons.ERROR_REASON_NOT_FOUND:
                raise
            return ""
        return found.mapping.provider_tool_use_id
