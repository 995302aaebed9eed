"""Tells whether transcript entries rewrite history that stands before them."""

from counterfoil.transcript.v1 import transcript_pb2, transcript_pb2_grpc
from counterfoil.types.v1.reference_pb2 import ThreadRef

from services.context.reducer import rewrites


class Rewriting:
    """A reader of transcripts that keeps nothing of what they say."""

    def __init__(self, transcript: transcript_pb2_grpc.TranscriptServiceStub) -> None:
        self._transcript = transcript

    async def is_between(self, thread: ThreadRef, one_seq: int, other_seq: int) -> bool:
        """Whether an entry behind the earlier place, through the later one, takes away what stands
        before these entries."""
        after, through = sorted((one_seq, other_seq))
        entries: list[transcript_pb2.Entry] = []
        while after < through:
            request = transcript_pb2.ListEntriesRequest(
                thread=thread, seq_after=after, seq_through=through
            )
            page = await self._transcript.ListEntries(request)
            if not page.entries:
                break
            entries += [_without_content(entry) for entry in page.entries]
            after = page.entries[-1].seq
        return rewrites(entries)


def _without_content(entry: transcript_pb2.Entry) -> transcript_pb2.Entry:
    skipped = transcript_pb2.EntryContent(skipped_entry_ids=entry.content.skipped_entry_ids)
    return transcript_pb2.Entry(id=entry.id, kind=entry.kind, content=skipped)
