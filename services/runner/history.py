"""Writes a turn's input, results and continuations into the transcript: rows 3 and 14."""

from collections.abc import Mapping, Sequence

from counterfoil.context.v1 import context_pb2
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import reference_pb2

from services.runner import messages, names
from services.runner.authorities import Authorities, answered
from services.runner.turn import CONTINUE, INPUT, RESULTS, Turn

_KNOWN_MAX = 256
_KNOWN_BYTES_MAX = 1 << 20


class Writer:
    """Appends for one turn; every append names the head that it extends."""

    def __init__(self, authorities: Authorities, turn: Turn) -> None:
        self._to = authorities
        self._turn = turn

    async def append_input(self) -> None:
        """Row 3, unless the input is stored already."""
        claim = self._turn.claim
        if claim.round >= 0 or (0, INPUT) in self._turn.entries:
            return
        event_ids = [id_ for id_ in (claim.input.event_id, claim.input.system_event_id) if id_]
        content = transcript_pb2.EntryContent(
            blocks=messages.input_blocks(claim.input),
            log_point=self._log_point(),
            event_ids=event_ids,
        )
        await self.append(names.input_entry(self._turn.id), INPUT, 0, content)

    async def append_results(
        self,
        round_number: int,
        calls: Sequence[turn_pb2.RoundCall],
        operations: Mapping[str, journal_pb2.Operation],
        system_bodies: Sequence[bytes],
    ) -> None:
        """Row 14: references to the outcomes (operations by id), in use order."""
        results = [
            transcript_pb2.ResultReference(
                operation_id=call.operation_id,
                block_index=call.block_index,
                projection_digest=operations[call.operation_id].projection.digest,
            )
            for call in calls
        ]
        content = transcript_pb2.EntryContent(
            results=results,
            trailing_blocks=[messages.system_block(body) for body in system_bodies],
            log_point=self._log_point(),
        )
        entry_id = names.results_entry(self._turn.id, round_number)
        await self.append(entry_id, RESULTS, round_number, content)
        self._turn.known_results = _known([operations[call.operation_id] for call in calls])

    async def append_continue(self, round_number: int) -> None:
        """The host's word behind a cut-off answer."""
        entry_id = names.continue_entry(self._turn.id, round_number)
        content = transcript_pb2.EntryContent(blocks=[messages.CONTINUE])
        await self.append(entry_id, CONTINUE, round_number, content)

    async def append(
        self,
        entry_id: str,
        kind: "transcript_pb2.TranscriptEntryKind.ValueType",
        round_number: int,
        content: transcript_pb2.EntryContent,
        *,
        attempt: reference_pb2.Attempt | None = None,
    ) -> transcript_pb2.Entry:
        """Appends, or adopts what is stored under the id. Raises Conflict when the head moved."""
        request = transcript_pb2.AppendEntryRequest(
            fence=self._turn.fence,
            expected_head=self._turn.head,
            entry_id=entry_id,
            kind=kind,
            turn_id=self._turn.id,
            round=round_number,
            attempt=attempt,
            content=content,
        )
        stored = await answered(self._to.transcript.AppendEntry, request)
        self._turn.adopt(stored.entry, stored.head)
        return stored.entry

    def _log_point(self) -> transcript_pb2.LogPoint:
        point = self._turn.claim.log_point
        return transcript_pb2.LogPoint(position=point.position, digest=point.digest)


def _known(operations: Sequence[journal_pb2.Operation]) -> list[context_pb2.KnownResult]:
    """The results as far as they are worth carrying."""
    bodies = {operation.id: operation.projection.body for operation in operations}
    if len(bodies) > _KNOWN_MAX or sum(map(len, bodies.values())) > _KNOWN_BYTES_MAX:
        return []
    return [
        context_pb2.KnownResult(operation_id=id, projection=body)
        for id, body in bodies.items()
        if body
    ]
