"""What a new owner does before it reads anything: fence, compare with the recorded head, adopt."""

from collections.abc import Sequence

from counterfoil.context.v1 import context_pb2
from counterfoil.journal.v1 import journal_pb2
from counterfoil.transcript.v1 import transcript_pb2

from services.runner import answer as answers
from services.runner import names
from services.runner.authorities import Authorities, Corrupt, answered
from services.runner.turn import ANSWER, NOTE, WITHHELD, Turn

ABANDONED = transcript_pb2.TRANSCRIPT_ENTRY_KIND_ABANDONED


class Recovery:
    """Brings a turn's state up to what the authorities hold."""

    def __init__(self, authorities: Authorities, turn: Turn) -> None:
        self._to = authorities
        self._turn = turn

    async def fence(self) -> None:
        """Refuses older writers everywhere, then reads. Raises Corrupt when the transcript is
        shorter than, or different from, what the ledger recorded."""
        turn = self._turn
        turn.may_end_late = True  # older owners may have closed calls
        fenced = await answered(
            self._to.transcript.Fence,
            transcript_pb2.FenceRequest(fence=turn.fence, turn_id=turn.id),
        )
        await answered(
            self._to.journal.Fence, journal_pb2.FenceRequest(fence=turn.fence, turn_id=turn.id)
        )
        await answered(
            self._to.context.Fence, context_pb2.FenceRequest(fence=turn.fence, turn_id=turn.id)
        )
        entries = list(fenced.entries)
        if fenced.has_more:
            entries += await self._more_of_turn(entries[-1].seq)
        beyond = await self._beyond_recorded_head()
        turn.head = fenced.head
        turn.entries = {(entry.round, entry.kind): entry for entry in entries}
        turn.unrecorded.clear()
        for entry in beyond:
            turn.note_unrecorded(entry)
        await self._abandon(beyond)

    async def _beyond_recorded_head(self) -> list[transcript_pb2.Entry]:
        recorded = self._turn.claim.transcript_head
        entries = await self._entries_behind(max(0, recorded.seq - 1))
        if recorded.seq == 0:
            return entries
        if not entries or entries[0].seq != recorded.seq:
            raise Corrupt(f"the transcript ends before entry {recorded.seq}")
        if entries[0].digest != recorded.digest:
            raise Corrupt(f"transcript entry {recorded.seq} is not the recorded one")
        return entries[1:]

    async def _more_of_turn(self, seq_after: int) -> list[transcript_pb2.Entry]:
        """The turn's entries that did not fit in the fence's answer."""
        entries = await self._entries_behind(seq_after)
        return [entry for entry in entries if entry.turn_id == self._turn.id]

    async def _entries_behind(self, seq_after: int) -> list[transcript_pb2.Entry]:
        """All entries behind a sequence, page by page."""
        entries: list[transcript_pb2.Entry] = []
        while True:
            request = transcript_pb2.ListEntriesRequest(
                thread=self._turn.thread, seq_after=seq_after
            )
            page = await answered(self._to.transcript.ListEntries, request)
            entries.extend(page.entries)
            if not page.entries or page.entries[-1].seq >= page.head.seq:
                return entries
            seq_after = page.entries[-1].seq

    async def _abandon(self, beyond: Sequence[transcript_pb2.Entry]) -> None:
        """Entries of other turns beyond the recorded head exist only after a restored backup: the
        ledger does not know their turns as they were. The reducer skips them from now on."""
        known = {id_ for entry in beyond for id_ in entry.content.skipped_entry_ids}
        stray = [e.id for e in beyond if e.turn_id != self._turn.id and e.id not in known]
        stray = [id_ for id_ in stray if not _is_host(beyond, id_)]
        if not stray:
            return
        request = transcript_pb2.AppendEntryRequest(
            fence=self._turn.fence,
            expected_head=self._turn.head,
            entry_id=names.abandoned_entry(self._turn.id, self._turn.claim.epoch),
            kind=ABANDONED,
            turn_id=self._turn.id,
            content=transcript_pb2.EntryContent(skipped_entry_ids=stray),
        )
        stored = await answered(self._to.transcript.AppendEntry, request)
        self._turn.adopt(stored.entry, stored.head)

    async def inputs_of(self, round_number: int) -> dict[int, bytes]:
        """Inputs of a round's calls by block index, from the stored answer."""
        entry = self._turn.entries.get((round_number, ANSWER))
        if entry is None:
            entry = await self._answer_entry(round_number)
        return {call.block_index: call.input for call in answers.calls_of(entry.content.blocks)}

    async def _answer_entry(self, round_number: int) -> transcript_pb2.Entry:
        """The answer that a parked round resumes: the newest entry of a clean claim."""
        for entry in await self._entries_behind(max(0, self._turn.head.seq - 1)):
            if entry.kind == ANSWER and entry.round == round_number:
                return entry
        raise Corrupt(f"the answer of round {round_number} is not at the transcript's head")


def _is_host(entries: Sequence[transcript_pb2.Entry], entry_id: str) -> bool:
    host = (ABANDONED, WITHHELD, NOTE)
    return any(entry.id == entry_id and entry.kind in host for entry in entries)
