"""Copies the beginning of one thread's history into another thread, which begins with it.

A page is one transaction, and the head moves with it: whoever comes back after a death goes on
behind the head. What is copied has the same sequence, kind, round and blocks. Ids of entries, turns
and use events are derived from the new thread and the old id. Operations keep theirs: the model may
have been told one, as the place where an archived result can be read.
"""

import asyncio
from typing import NamedTuple

from counterfoil.transcript.v1 import transcript_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Head

from foundation import ids
from foundation.errors import Failure, deleted, not_found
from foundation.storage import Connection, Database, SealRing
from services.transcript import heads, redaction_store, store
from services.transcript.admission import admit
from services.transcript.chain import (
    StoredEntry,
    StoredHead,
    ThreadKey,
    key_of,
    seal_content,
    seal_head,
    seal_provider_id,
    seal_redaction,
)
from services.transcript.reading import EntryReader, check_head, corrupt, show_entry

_ENTRIES_MAX = 500
# Opening and sealing take 2 ms for a megabyte: the loop breathes in between.
_BREATH_BYTES = 1 << 19


class _Page(NamedTuple):
    """Entries of the source in order, as they are stored and opened, and the one before them."""

    before: StoredEntry | None
    stored: list[StoredEntry]
    entries: list[pb.Entry]

    @property
    def operation_ids(self) -> list[str]:
        """Operations whose outcomes the page refers to."""
        return [result.operation_id for one in self.entries for result in one.content.results]


def copied_content(content: pb.EntryContent, thread_id: str) -> pb.EntryContent:
    """The content as it stands in another thread: blocks and operations as they are, without what
    names the public log, provider calls and snapshots of the thread that it comes from."""
    copy = pb.EntryContent()
    copy.CopyFrom(content)
    for name in ("log_point", "event_ids", "operation_id", "snapshot_id"):
        copy.ClearField(name)
    for mapping in copy.mappings:
        mapping.event_id = ids.copied("event", thread_id, mapping.event_id)
    copy.skipped_entry_ids[:] = [
        ids.copied("entry", thread_id, id_) for id_ in content.skipped_entry_ids
    ]
    return copy


class Copier:
    """Copies pages between the threads of one database."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring

    async def copy(self, request: pb.CopyThreadRequest) -> pb.CopyThreadResponse:
        """The page behind `seq_after`, copied now or before; raises what the contract says."""
        key, source = key_of(request.fence.thread), key_of(request.source)
        if source.workspace_id != key.workspace_id:
            raise not_found("thread", source.thread_id)
        page = await self._read(source, request.source_head, request.seq_after)
        async with self._db.commit("transcript.copy") as connection:
            head = await heads.locked(connection, self._ring, key, create=True)
            admit(head, key.thread_id, request.fence.epoch)
            if head.seq < page.stored[-1].seq:
                await self._check(connection, key, head, page)
                last = await self._write(connection, key, head, page, request.fence.epoch)
            else:
                last = await self._stored(connection, key, page.stored[-1])
        response = pb.CopyThreadResponse(operation_ids=page.operation_ids)
        show_entry(last, None, response.last)
        return response

    async def _read(self, source: ThreadKey, through: Head, seq_after: int) -> _Page:
        """A page of the source, every entry checked against its chain."""
        last = min(through.seq, seq_after + _ENTRIES_MAX)
        listed = await store.list_entries(self._db, source, seq_after, last)
        if listed is None or not listed.entries or listed.entries[-1].seq <= seq_after:
            raise corrupt(seq_after + 1, "is missing")
        if listed.head.is_deleted:
            raise deleted(source.thread_id)
        check_head(self._ring, source, listed.head, listed.seal)
        found = listed.entries
        before = found.pop(0) if found[0].seq <= seq_after else None
        erased = [entry.seq for entry in found if entry.content is None]
        redactions = await redaction_store.redactions(self._db, source, erased)
        reader = EntryReader(self._ring, source, redactions, is_deleted=False)
        page, size, digest = _Page(before, found, []), 0, b"" if before is None else before.digest
        for expected, entry in enumerate(found, start=seq_after + 1):
            if entry.seq != expected:
                raise corrupt(expected, "is missing")
            message = pb.Entry()
            reader.read(entry, digest, message)
            page.entries.append(message)
            digest, size = entry.digest, size + len(entry.content or b"")
            if size > _BREATH_BYTES:
                size = 0
                await asyncio.sleep(0)
        if found[-1].seq == through.seq and found[-1].digest != through.digest:
            raise corrupt(through.seq, "is not the one at which the history is to be cut")
        return page

    async def _write(
        self, connection: Connection, key: ThreadKey, head: StoredHead, page: _Page, epoch: int
    ) -> StoredEntry:
        """Add what of the page stands behind the head; the last entry."""
        entries: list[StoredEntry] = []
        names: list[tuple[int, int, str, str, bytes]] = []
        digest, size = head.digest, 0
        for stored, message in zip(page.stored, page.entries, strict=True):
            if stored.seq <= head.seq:
                continue
            entry, content = self._copied(key, stored, message, digest, epoch)
            entries.append(entry)
            names += self._names(key, stored.seq, content)
            digest, size = entry.digest, size + len(entry.content or b"")
            if size > _BREATH_BYTES:
                size = 0
                await asyncio.sleep(0)
        last = entries[-1]
        seal = seal_head(self._ring, key, StoredHead(last.seq, last.digest, epoch, False))
        await store.copy(connection, key, entries, names, epoch, seal)
        erased = [entry for entry in entries if entry.content is None]
        if erased:
            seals = {e.seq: seal_redaction(self._ring, key, e.seq, e.commitment) for e in erased}
            await redaction_store.insert(connection, key, seals)
        return last

    def _copied(
        self, key: ThreadKey, stored: StoredEntry, message: pb.Entry, previous: bytes, epoch: int
    ) -> tuple[StoredEntry, pb.EntryContent]:
        content = copied_content(message.content, key.thread_id)
        body = content.SerializeToString(deterministic=True)
        if stored.content is None:
            sealed, committed = None, stored.commitment  # redacted there, redacted here
        else:
            sealed, committed = seal_content(self._ring, key, stored.seq, body)
        unlinked = stored._replace(
            entry_id=ids.copied("entry", key.thread_id, stored.entry_id),
            turn_id=ids.copied("turn", key.thread_id, stored.turn_id),
            epoch=epoch,
            content=sealed,
            commitment=committed,
        )
        return unlinked._replace(digest=unlinked.digest_behind(key, previous)), content

    def _names(
        self, key: ThreadKey, seq: int, content: pb.EntryContent
    ) -> list[tuple[int, int, str, str, bytes]]:
        return [
            (
                seq,
                m.block_index,
                m.operation_id,
                m.event_id,
                seal_provider_id(self._ring, key, seq, m.block_index, m.provider_tool_use_id),
            )
            for m in content.mappings
        ]

    async def _check(
        self, connection: Connection, key: ThreadKey, head: StoredHead, page: _Page
    ) -> None:
        """Raise WRONG_STATE unless the head is where a copy of this history stands."""
        if head.seq == 0 and page.before is None:
            return
        known = (page.before, *page.stored)
        source = next((one for one in known if one is not None and one.seq == head.seq), None)
        if source is None:
            raise _not_a_copy(key, head.seq)
        await self._stored(connection, key, source)

    async def _stored(
        self, connection: Connection, key: ThreadKey, source: StoredEntry
    ) -> StoredEntry:
        """The copy of an entry that was copied before."""
        id_ = ids.copied("entry", key.thread_id, source.entry_id)
        row = await connection.fetchrow(store.ENTRY_BY_ID, *key, id_)
        if row is None or row["seq"] != source.seq:
            raise _not_a_copy(key, source.seq)
        return store.entry_of(row)


def _not_a_copy(key: ThreadKey, seq: int) -> Failure:
    return Failure(
        reasons.ERROR_REASON_WRONG_STATE,
        f"thread {key.thread_id} does not begin with this history: its entry {seq} is another",
    )
