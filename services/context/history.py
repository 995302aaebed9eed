"""Reads transcript and journal, and brings a thread's warm state to a named head."""

from collections.abc import AsyncIterator, Sequence

from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc
from counterfoil.transcript.v1 import transcript_pb2, transcript_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Head, ThreadRef

from foundation.errors import Failure, wrong_state
from services.context.cache import Warm
from services.context.reducer import (
    Effective,
    HistoryCorruptError,
    OpenCallsError,
    Use,
    reduce,
    rewrites,
    wanted_operations,
)

_PAGE_ENTRIES = 256
_PAGE_OPERATIONS = 128


class History:
    """Read-only clients of transcript and journal."""

    def __init__(
        self,
        transcript: transcript_pb2_grpc.TranscriptServiceStub,
        journal: journal_pb2_grpc.JournalServiceStub,
    ) -> None:
        self._transcript = transcript
        self._journal = journal

    async def current(self, thread: ThreadRef, head: Head, warm: Warm | None) -> Warm:
        """The thread at `head`, which must be the transcript's head. Reads only what `warm` lacks.

        Raises HEAD_MISMATCH, WRONG_STATE when a call has no result, CORRUPT.
        """
        if warm is not None and await self._advance(thread, head, warm):
            return warm
        return await self._cold(thread, head, through_only=False)

    async def past(self, thread: ThreadRef, head: Head) -> Warm:
        """The thread as it was at `head`. Raises CORRUPT when the transcript never was there."""
        return await self._cold(thread, head, through_only=True)

    async def _advance(self, thread: ThreadRef, head: Head, warm: Warm) -> bool:
        """Go on from a warm state; False when it is not on the way to `head`."""
        if not 0 < warm.seq <= head.seq:
            return False
        # One entry is read again: it tells whether the transcript still is the one that was warm.
        entries = [e async for e in self._entries(thread, warm.seq - 1, head, through_only=False)]
        if not entries or entries[0].digest != warm.digest:
            return False
        new = entries[1:]
        if rewrites(new):
            return False
        effective = await self._reduced(thread, new, warm.open)
        warm.extend(effective, head.seq, head.digest)
        return True

    async def _cold(self, thread: ThreadRef, head: Head, *, through_only: bool) -> Warm:
        # All entries before the first is reduced: a late one may say that an early one is skipped.
        entries = [e async for e in self._entries(thread, 0, head, through_only=through_only)]
        warm = Warm()
        warm.extend(await self._reduced(thread, entries, ()), head.seq, head.digest)
        return warm

    async def _entries(
        self, thread: ThreadRef, after: int, head: Head, *, through_only: bool
    ) -> AsyncIterator[transcript_pb2.Entry]:
        last: transcript_pb2.Entry | None = None
        while True:
            page = await self._transcript.ListEntries(
                transcript_pb2.ListEntriesRequest(
                    thread=thread,
                    seq_after=after,
                    seq_through=min(after + _PAGE_ENTRIES, head.seq),
                )
            )
            if not through_only and page.head != head:
                raise _moved(head, page.head)
            for entry in page.entries:
                yield entry
                last = entry
            # A page may end early, with its bytes; one without entries ends before its time.
            if not page.entries or page.entries[-1].seq >= head.seq:
                break
            after = page.entries[-1].seq
        found = Head() if last is None else Head(seq=last.seq, digest=last.digest)
        if found != head:
            raise _corrupt(f"the transcript has no head {head.seq} with this digest")

    async def _reduced(
        self, thread: ThreadRef, entries: Sequence[transcript_pb2.Entry], open: tuple[Use, ...]
    ) -> Effective:
        try:
            projections = await self._projections(thread, wanted_operations(entries))
            effective = reduce(entries, projections, open)
        except HistoryCorruptError as error:
            raise _corrupt(str(error)) from error
        except OpenCallsError as error:
            raise wrong_state(str(error)) from error
        if effective.open:
            raise wrong_state(f"{len(effective.open)} tool calls have no results yet")
        return effective

    async def _projections(
        self, thread: ThreadRef, operation_ids: Sequence[str]
    ) -> dict[str, journal_pb2.Projection]:
        found: dict[str, journal_pb2.Projection] = {}
        pages = [
            operation_ids[start : start + _PAGE_OPERATIONS]
            for start in range(0, len(operation_ids), _PAGE_OPERATIONS)
        ]
        while pages:
            page = pages.pop()
            request = journal_pb2.GetOperationsRequest(thread=thread, operation_ids=page)
            try:
                response = await self._journal.GetOperations(request)
            except Failure as failure:
                if failure.reason != reasons.ERROR_REASON_TOO_LARGE or len(page) == 1:
                    raise
                # Results may be large: what does not fit in one message is asked for in two.
                pages += [page[: len(page) // 2], page[len(page) // 2 :]]
                continue
            found.update({one.id: one.projection for one in response.operations})
        return found


def _moved(expected: Head, found: Head) -> Failure:
    where = "with another digest" if expected.seq == found.seq else str(found.seq)
    return Failure(
        reasons.ERROR_REASON_HEAD_MISMATCH,
        f"expected transcript head {expected.seq}, found {where}",
        metadata={"seq": str(found.seq)},
    )


def _corrupt(message: str) -> Failure:
    return Failure(reasons.ERROR_REASON_CORRUPT, message)
