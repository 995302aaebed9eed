"""Reads transcript, journal and files, and brings a thread's warm state to a named head."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing

from counterfoil.files.v1 import artifacts_pb2, artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc
from counterfoil.transcript.v1 import transcript_pb2, transcript_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Head, ThreadRef

from foundation.errors import Failure, wrong_state
from foundation.projections import collect_refs
from services.context.cache import Warm
from services.context.losses import Losses
from services.context.materializer import wanted_artifacts
from services.context.prefixes import Prefixes
from services.context.reducer import (
    Effective,
    HistoryCorruptError,
    Item,
    OpenCallsError,
    opening,
    reduce,
    rewrites,
    skipped_ids,
    wanted_operations,
)

_PAGE_ENTRIES = 256
_PAGES_AHEAD = 2
"""Pages that are read while one is reduced."""

_PAGE_OPERATIONS = 128

Asked = asyncio.Future[transcript_pb2.ListEntriesResponse]
Known = Mapping[str, journal_pb2.Projection]
"""Projections of results that the caller brings, by operation."""


class History:
    """Read-only clients of transcript, journal and files."""

    def __init__(
        self,
        transcript: transcript_pb2_grpc.TranscriptServiceStub,
        journal: journal_pb2_grpc.JournalServiceStub,
        artifacts: artifacts_pb2_grpc.ArtifactServiceStub,
        prefixes: Prefixes,
    ) -> None:
        self._transcript = transcript
        self._journal = journal
        self._artifacts = artifacts
        self._prefixes = prefixes

    async def current(
        self,
        thread: ThreadRef,
        head: Head,
        warm: Warm | None,
        losses: Losses,
        known: Known | None = None,
    ) -> Warm:
        """The thread at `head`, which must be the transcript's head, with these losses; `warm` is
        of the same. Reads only what `warm` lacks, and of the results what is not `known`; wrong
        ones do not count. Without a `warm` that is on the way there, goes on from what is kept.

        Raises HEAD_MISMATCH, WRONG_STATE when a call has no result, CORRUPT.
        """
        if warm is not None and await self._advance(thread, head, warm, known, through_only=False):
            return warm
        kept = await self._prefixes.find(thread, head.seq, losses)
        if kept is not None and await self._advance(thread, head, kept, through_only=False):
            return kept
        return await self._cold(thread, head, losses, through_only=False)

    async def past(
        self, thread: ThreadRef, head: Head, losses: Losses, warm: Warm | None = None
    ) -> Warm:
        """The thread as it was at `head` with these losses, from its entries alone, or on from an
        earlier head with the same ones. Raises CORRUPT when the transcript never was there."""
        if (
            warm is not None
            and warm.seq
            and await self._advance(thread, head, warm, through_only=True)
        ):
            return warm
        return await self._cold(thread, head, losses, through_only=True)

    async def digest_at(self, thread: ThreadRef, seq: int) -> bytes:
        """The transcript's chain digest at an entry. Raises CORRUPT for one that it does not
        have."""
        page = await self._ask(thread, seq, seq)
        if page.before.seq != seq:
            raise _corrupt(f"transcript entry {seq} is missing")
        return page.before.digest

    async def items(
        self, thread: ThreadRef, head: Head, losses: Losses, *, through_only: bool = False
    ) -> list[Item]:
        """All of effective history at `head`: what plans and summaries are made from. With
        `through_only` the transcript may have gone on."""
        entries = await self._entries(thread, head, losses, through_only=through_only)
        wanted = wanted_operations(entries)
        opening, effective = await self._reduced(thread, entries, losses, wanted)
        return [*opening, *effective.items]

    async def entries(self, thread: ThreadRef) -> AsyncGenerator[transcript_pb2.Entry]:
        """All entries of the transcript, through its head, as they are stored."""
        after = 0
        while (page := await self._ask(thread, after, 0)).entries:
            for entry in page.entries:
                yield entry
            after = page.entries[-1].seq

    async def artifacts_of(self, thread: ThreadRef, operation_id: str) -> tuple[str, ...]:
        """Ids of the artifacts that an operation's result refers to; none for one without a
        result, or of which it is gone."""
        found = await self._projections(thread, [operation_id])
        body = found[operation_id].body if operation_id in found else b""
        return collect_refs(body) if body else ()

    async def _advance(
        self,
        thread: ThreadRef,
        head: Head,
        warm: Warm,
        known: Known | None = None,
        *,
        through_only: bool,
    ) -> bool:
        """Go on from a warm state, page by page; False when it is not on the way to `head`."""
        if warm.seq > head.seq:
            return False
        async with aclosing(self._pages(thread, warm.seq, head, through_only)) as pages:
            async for page in pages:
                # Tells whether the transcript still is the one that was warm.
                if (page.before.seq, page.before.digest) != (warm.seq, warm.digest):
                    return False
                if rewrites(page.entries):
                    return False
                try:
                    await self._extend(thread, warm, page.entries, known)
                except (HistoryCorruptError, OpenCallsError):
                    return False  # a known result is wrong, or a later entry skips this one
        _check_end(warm, head)
        return True

    async def _cold(
        self, thread: ThreadRef, head: Head, losses: Losses, *, through_only: bool
    ) -> Warm:
        if losses.checkpoint is None:
            warm = Warm(losses=losses)
            if await self._advance(thread, head, warm, through_only=through_only):
                return warm
        # A late entry may say that an early one is skipped: all are read before one is reduced.
        entries = await self._entries(thread, head, losses, through_only=through_only)
        wanted = wanted_operations(entries)
        opening, effective = await self._reduced(thread, entries, losses, wanted)
        warm = Warm(losses=losses)
        await self._write(thread, warm, [*opening, *effective.items])
        last = entries[-1] if entries else losses.checkpoint
        if isinstance(last, transcript_pb2.Entry):
            warm.reach(last.seq, last.digest, effective.open)
        elif last is not None:
            warm.reach(last.through_seq, last.through_digest, effective.open)
        _check_end(warm, head)
        return warm

    async def _entries(
        self, thread: ThreadRef, head: Head, losses: Losses, *, through_only: bool = False
    ) -> list[transcript_pb2.Entry]:
        """All entries behind the checkpoint, through `head`."""
        checkpoint, entries = losses.checkpoint, list[transcript_pb2.Entry]()
        async with aclosing(
            self._pages(thread, losses.covered_through, head, through_only)
        ) as pages:
            async for page in pages:
                if checkpoint is not None and not entries:
                    covered = Head(seq=checkpoint.through_seq, digest=checkpoint.through_digest)
                    if page.before != covered:
                        raise _corrupt(f"checkpoint {checkpoint.id} covers another transcript")
                entries += page.entries
        return entries

    async def _reduced(
        self,
        thread: ThreadRef,
        entries: Sequence[transcript_pb2.Entry],
        losses: Losses,
        wanted: Sequence[str],
    ) -> tuple[tuple[Item, ...], Effective]:
        anchor = await self._anchor(thread, entries, losses)
        projections = await self._projections(thread, wanted)
        try:
            return opening(losses, anchor), reduce(entries, projections, losses)
        except HistoryCorruptError as error:
            raise _corrupt(str(error)) from error
        except OpenCallsError as error:
            raise wrong_state(str(error)) from error

    async def _anchor(
        self, thread: ThreadRef, entries: Sequence[transcript_pb2.Entry], losses: Losses
    ) -> transcript_pb2.Entry | None:
        """The input of the turn that the checkpoint cuts through, unless it is skipped by now."""
        if losses.checkpoint is None or losses.checkpoint.anchor_seq == 0:
            return None
        seq = losses.checkpoint.anchor_seq
        found = (await self._ask(thread, seq - 1, seq)).entries
        if not found:
            raise _corrupt(f"transcript entry {seq} is missing")
        return None if found[0].id in skipped_ids(entries) else found[0]

    async def _extend(
        self,
        thread: ThreadRef,
        warm: Warm,
        entries: Sequence[transcript_pb2.Entry],
        known: Known | None = None,
    ) -> None:
        if entries:
            known = known or {}
            wanted = [id for id in wanted_operations(entries) if id not in known]
            projections = {**known, **await self._projections(thread, wanted)}
            effective = reduce(entries, projections, warm.losses, warm.open)
            await self._write(thread, warm, effective.items)
            warm.reach(entries[-1].seq, entries[-1].digest, effective.open)

    async def _write(self, thread: ThreadRef, warm: Warm, items: Sequence[Item]) -> None:
        wanted = wanted_artifacts(items, warm.image_bytes)
        warm.extend(items, await self._blobs(thread, wanted) if wanted else {})

    async def _blobs(self, thread: ThreadRef, artifact_ids: Sequence[str]) -> dict[str, bytes]:
        """The bytes of those artifacts that are still kept. Fails while the store cannot be asked:
        a request that says less because of that would be another history."""
        blobs: dict[str, bytes] = {}
        for id in dict.fromkeys(artifact_ids):
            request = artifacts_pb2.ReadArtifactRequest(
                workspace_id=thread.workspace_id, session_id=thread.session_id, artifact_id=id
            )
            try:
                blobs[id] = (await self._artifacts.ReadArtifact(request)).body
            except Failure as failure:
                if failure.reason != reasons.ERROR_REASON_NOT_FOUND:
                    raise
        return blobs

    async def _pages(
        self, thread: ThreadRef, after: int, head: Head, through_only: bool
    ) -> AsyncGenerator[transcript_pb2.ListEntriesResponse]:
        """Everything behind `after` through `head`, one page at least."""
        starts = deque(range(after, head.seq, _PAGE_ENTRIES) or (after,))
        asked: deque[tuple[int, Asked]] = deque()
        try:
            while starts or asked:
                if len(starts) == 1 and not asked:  # nothing is read beside it: needs no task
                    through = head.seq
                    page = await self._ask(thread, starts.popleft(), through)
                else:
                    while starts and len(asked) <= _PAGES_AHEAD:
                        start = starts.popleft()
                        through = min(start + _PAGE_ENTRIES, head.seq)
                        asking = asyncio.ensure_future(self._ask(thread, start, through))
                        asked.append((through, asking))
                    through, asking = asked.popleft()
                    page = await asking
                if not through_only and page.head != head:
                    raise _moved(head, page.head)
                # A page may end early, with its bytes: its rest comes next.
                if page.entries and page.entries[-1].seq < through:
                    rest = asyncio.ensure_future(self._ask(thread, page.entries[-1].seq, through))
                    asked.appendleft((through, rest))
                yield page
        finally:
            for _, asking in asked:
                asking.cancel()
            if asked:
                await asyncio.gather(*(asking for _, asking in asked), return_exceptions=True)

    def _ask(
        self, thread: ThreadRef, after: int, through: int
    ) -> Awaitable[transcript_pb2.ListEntriesResponse]:
        request = transcript_pb2.ListEntriesRequest(
            thread=thread, seq_after=after, seq_through=through
        )
        return self._transcript.ListEntries(request)

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


def _check_end(warm: Warm, head: Head) -> None:
    """Raise CORRUPT unless `head` was reached, WRONG_STATE while a call there has no result."""
    if (warm.seq, warm.digest) != (head.seq, head.digest):
        raise _corrupt(f"the transcript has no head {head.seq} with this digest")
    if warm.open:
        raise wrong_state(f"{len(warm.open)} tool calls have no results yet")


def _moved(expected: Head, found: Head) -> Failure:
    where = "with another digest" if expected.seq == found.seq else str(found.seq)
    return Failure(
        reasons.ERROR_REASON_HEAD_MISMATCH,
        f"expected transcript head {expected.seq}, found {where}",
        metadata={"seq": str(found.seq)},
    )


def _corrupt(message: str) -> Failure:
    return Failure(reasons.ERROR_REASON_CORRUPT, message)
