"""The transcript's gRPC surface."""

import asyncio
from collections.abc import Iterable, Sequence

from counterfoil.transcript.v1 import transcript_pb2 as pb
from counterfoil.transcript.v1.transcript_pb2_grpc import (
    TranscriptServiceServicer,
    add_TranscriptServiceServicer_to_server,
)
from counterfoil.types.v1.mapping_pb2 import ToolCallMapping
from counterfoil.types.v1.reference_pb2 import Head

from foundation import ids
from foundation.bootstrap import Kernel
from foundation.errors import not_found
from foundation.rpc import context as call
from foundation.storage import Connection, Database, Record, SealBroken, SealRing
from services.transcript import export_service, heads, redaction_store, store
from services.transcript.admission import admit, check_shape, extend
from services.transcript.chain import (
    EPOCH_INFINITE,
    StoredEntry,
    StoredHead,
    ThreadKey,
    key_of,
    open_provider_id,
    seal_content,
    seal_head,
    seal_provider_id,
)
from services.transcript.copying import Copier
from services.transcript.reading import (
    EntryReader,
    check_head,
    corrupt,
    head_message,
    show_entry,
)
from services.transcript.redacting import redact
from services.transcript.verifying import verified

Linked = tuple[StoredEntry, bytes | None]
"""An entry, and the digest in the row before it."""

_PAGE_NAMES = 500
# Sealing and opening take about 1 ms for a megabyte, parsing less: the loop breathes in between.
_BREATH_BYTES = 1 << 20


async def start(kernel: Kernel) -> None:
    """Serve the transcript in this process."""
    db = await kernel.database("transcript")
    kernel.register(add_TranscriptServiceServicer_to_server, Transcript(db, kernel.ring))
    export_service.register(kernel, db)


class Transcript(TranscriptServiceServicer):
    """Entries in, entries out; who may write is decided by `admission`."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring

    async def Fence(self, request: pb.FenceRequest, context: object) -> pb.FenceResponse:
        key, epoch = key_of(request.fence.thread), request.fence.epoch
        async with self._db.commit("transcript.fence") as connection:
            head = await heads.locked(connection, self._ring, key, create=True)
            admit(head, key.thread_id, epoch)
            if epoch > head.epoch_max:
                await heads.raise_epoch(connection, self._ring, key, head, epoch)
            rows, has_more = await store.entries_of_turn(connection, key, request.turn_id)
        response = pb.FenceResponse(head=head_message(head), has_more=has_more)
        linked = [(store.entry_of(row), row["previous"]) for row in rows]
        await self._read(key, linked, response, is_deleted=False)
        return response

    async def AppendEntry(
        self, request: pb.AppendEntryRequest, context: object
    ) -> pb.AppendEntryResponse:
        check_shape(request)
        key = key_of(request.fence.thread)
        body = request.content.SerializeToString(deterministic=True)
        entry = self._new_entry(key, request, body)
        head = StoredHead(entry.seq, entry.digest, entry.epoch, False)
        arguments = store.append_arguments(
            key,
            entry,
            request.expected_head.digest,
            seal_head(self._ring, key, head),
            self._sealed_names(key, entry.seq, request.content.mappings),
        )
        if await self._db.commit_grouped(
            "transcript.append", store.APPEND, *arguments, weight=len(entry.content or b"")
        ):
            return _appended(entry, body)
        return await self._adopt(key, request, entry, body, arguments)

    async def ListEntries(
        self, request: pb.ListEntriesRequest, context: object
    ) -> pb.ListEntriesResponse:
        key = key_of(request.thread)
        after, through = request.seq_after, request.seq_through
        listed = await store.list_entries(self._db, key, after, through)
        if listed is None:
            return pb.ListEntriesResponse(head=Head())
        head, found = listed.head, listed.entries
        check_head(self._ring, key, head, listed.seal)
        before = found.pop(0) if found and found[0].seq <= after else None
        _check_range(found, head, after, through, listed.through)
        response = pb.ListEntriesResponse(head=head_message(head))
        if before is not None:
            response.before.seq, response.before.digest = before.seq, before.digest
        previous = [None if before is None else before.digest, *(e.digest for e in found)]
        linked = zip(found, previous, strict=False)
        await self._read(key, linked, response, is_deleted=head.is_deleted)
        return response

    async def ResolveMapping(
        self, request: pb.ResolveMappingRequest, context: object
    ) -> pb.ResolveMappingResponse:
        key = key_of(request.thread)
        async with self._db.commit("transcript.resolve") as connection:
            found = await self._find_name(connection, key, request)
            if found is None:
                raise not_found("tool call", "with this name")
            head = store.head_of(await connection.fetchrow(store.HEAD, *key))
            await self._note(connection, key, "resolve", Head(seq=head.seq, digest=head.digest))
        return found

    async def VerifyTranscript(
        self, request: pb.VerifyTranscriptRequest, context: object
    ) -> pb.VerifyTranscriptResponse:
        key = key_of(request.thread)
        async with self._db.read() as connection:
            result = await verified(connection, self._ring, key)
        async with self._db.commit("transcript.note_access") as connection:
            await self._note(connection, key, "verify", result.head)
        return result

    async def RedactEntry(
        self, request: pb.RedactEntryRequest, context: object
    ) -> pb.RedactEntryResponse:
        return await redact(self._db, self._ring, request)

    async def CopyThread(
        self, request: pb.CopyThreadRequest, context: object
    ) -> pb.CopyThreadResponse:
        return await Copier(self._db, self._ring).copy(request)

    async def Tombstone(
        self, request: pb.TombstoneRequest, context: object
    ) -> pb.TombstoneResponse:
        key = key_of(request.thread)
        async with self._db.commit("transcript.tombstone") as connection:
            # What was tampered with can be deleted, too.
            head = await heads.locked(connection, self._ring, key, create=True, check=False)
            dead = StoredHead(head.seq, head.digest, EPOCH_INFINITE, True)
            seal = seal_head(self._ring, key, dead)
            await store.set_epoch(connection, key, EPOCH_INFINITE, True, seal)
            await store.erase(connection, key)
        return pb.TombstoneResponse()

    async def _adopt(
        self,
        key: ThreadKey,
        request: pb.AppendEntryRequest,
        entry: StoredEntry,
        body: bytes,
        arguments: Sequence[object],
    ) -> pb.AppendEntryResponse:
        """What an append means that is not simply the next one, decided under the head's lock."""
        async with self._db.commit("transcript.adopt") as connection:
            head = await heads.locked(connection, self._ring, key, create=False)
            admit(head, key.thread_id, entry.epoch)
            row = await connection.fetchrow(store.ENTRY_BY_ID, *key, entry.entry_id)
            if row is None:
                extend(head, request.expected_head)
                if not await connection.fetch(store.APPEND, *arguments):
                    raise RuntimeError("an append was refused under the lock of its head")
                return _appended(entry, body)
            if entry.epoch > head.epoch_max:
                await heads.raise_epoch(connection, self._ring, key, head, entry.epoch)
        response = pb.AppendEntryResponse(created=False, head=head_message(head))
        redactions = await self._redactions(key, [store.entry_of(row)])
        reader = EntryReader(self._ring, key, redactions, is_deleted=False)
        reader.read(store.entry_of(row), row["previous"], response.entry)
        return response

    def _new_entry(
        self, key: ThreadKey, request: pb.AppendEntryRequest, body: bytes
    ) -> StoredEntry:
        seq = request.expected_head.seq + 1
        content, committed = seal_content(self._ring, key, seq, body)
        unlinked = StoredEntry(
            seq=seq,
            entry_id=request.entry_id,
            kind=request.kind,
            turn_id=request.turn_id,
            round=request.round,
            attempt_epoch=request.attempt.epoch,
            attempt_number=request.attempt.number,
            epoch=request.fence.epoch,
            content=content,
            commitment=committed,
            digest=b"",
        )
        return unlinked._replace(digest=unlinked.digest_behind(key, request.expected_head.digest))

    def _sealed_names(
        self, key: ThreadKey, seq: int, mappings: Sequence[ToolCallMapping]
    ) -> list[tuple[int, str, str, bytes]]:
        return [
            (
                m.block_index,
                m.operation_id,
                m.event_id,
                seal_provider_id(self._ring, key, seq, m.block_index, m.provider_tool_use_id),
            )
            for m in mappings
        ]

    async def _read(
        self,
        key: ThreadKey,
        linked: Iterable[Linked],
        response: pb.FenceResponse | pb.ListEntriesResponse,
        *,
        is_deleted: bool,
    ) -> None:
        """Add entries to the response."""
        linked = list(linked)
        redactions = await self._redactions(key, [entry for entry, _ in linked])
        reader = EntryReader(self._ring, key, redactions, is_deleted=is_deleted)
        bytes_read = 0
        for entry, previous in linked:
            reader.read(entry, previous, response.entries.add())
            bytes_read += len(entry.content or b"")
            if bytes_read > _BREATH_BYTES:
                bytes_read = 0
                await asyncio.sleep(0)

    async def _redactions(self, key: ThreadKey, entries: Iterable[StoredEntry]) -> dict[int, bytes]:
        """Seals of the redactions of those that have no content."""
        erased = [entry.seq for entry in entries if entry.content is None]
        return await redaction_store.redactions(self._db, key, erased)

    async def _find_name(
        self, connection: Connection, key: ThreadKey, request: pb.ResolveMappingRequest
    ) -> pb.ResolveMappingResponse | None:
        if request.HasField("operation_id"):
            row = await connection.fetchrow(store.NAME_BY_OPERATION, *key, request.operation_id)
        elif request.HasField("event_id"):
            row = await connection.fetchrow(store.NAME_BY_EVENT, *key, request.event_id)
        else:
            return await self._find_provider_id(connection, key, request.provider_tool_use_id)
        return None if row is None else self._name_message(key, row)

    async def _find_provider_id(
        self, connection: Connection, key: ThreadKey, provider_id: str
    ) -> pb.ResolveMappingResponse | None:
        """Provider ids are sealed, so this opens them, newest first; nothing hot asks for it."""
        before = (2**62, 0)
        while rows := await connection.fetch(store.NAMES_BEFORE, *key, *before, _PAGE_NAMES):
            for row in rows:
                found = self._name_message(key, row)
                if found.mapping.provider_tool_use_id == provider_id:
                    return found
            before = (rows[-1]["seq"], rows[-1]["block_index"])
        return None

    def _name_message(self, key: ThreadKey, row: Record) -> pb.ResolveMappingResponse:
        seq, index, sealed = row["seq"], row["block_index"], row["provider_tool_use_id"]
        try:
            provider_id = (
                "" if sealed is None else open_provider_id(self._ring, key, seq, index, sealed)
            )
        except SealBroken:
            raise corrupt(seq, "has an id map that does not open") from None
        return pb.ResolveMappingResponse(
            entry_id=row["entry_id"],
            mapping=ToolCallMapping(
                block_index=index,
                provider_tool_use_id=provider_id,
                operation_id=row["operation_id"],
                event_id=row["event_id"],
            ),
        )

    async def _note(self, connection: Connection, key: ThreadKey, action: str, head: Head) -> None:
        request_id = call.current().request_id
        arguments = (ids.new("access"), action, request_id, head.seq, head.digest)
        await connection.execute(store.NOTE_ACCESS, *key, *arguments)


def _appended(entry: StoredEntry, body: bytes) -> pb.AppendEntryResponse:
    response = pb.AppendEntryResponse(created=True, head=Head(seq=entry.seq, digest=entry.digest))
    show_entry(entry, body, response.entry)
    return response


def _check_range(
    entries: Sequence[StoredEntry],
    head: StoredHead,
    after: int,
    through: int,
    stored_through: int,
) -> None:
    """Raise CORRUPT when the range has a hole, or the last entry is not the head's.

    A page that was cut ends before the range does: what the range ends with is known all the same.
    """
    last = min(through or head.seq, head.seq)
    if entries and after < entries[-1].seq < stored_through == last:
        last = entries[-1].seq
    expected = after
    for entry in entries:
        expected += 1
        if entry.seq != expected:
            raise corrupt(expected, "is missing")
    if expected < last:
        raise corrupt(expected + 1, "is missing")
    if entries and expected == head.seq and entries[-1].digest != head.digest:
        raise corrupt(expected, "is not the head's")
