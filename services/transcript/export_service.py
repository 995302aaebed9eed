"""The transcript as lines: entries with their salts, so that the chain verifies elsewhere, too.

The id map and the head row are derived from the entries and stand in no line.
"""

from collections.abc import AsyncIterator
from functools import partial

from counterfoil.transcript.v1 import export_pb2 as pb
from counterfoil.transcript.v1.export_pb2_grpc import (
    TranscriptExportServiceServicer,
    TranscriptImportServiceServicer,
    add_TranscriptExportServiceServicer_to_server,
    add_TranscriptImportServiceServicer_to_server,
)
from counterfoil.types.v1.reference_pb2 import Head

from foundation import exports, ids
from foundation.bootstrap import Kernel
from foundation.digests import SALT_BYTES, commitment
from foundation.exports import (
    Begin,
    Line,
)
from foundation.exports.restoring import restored
from foundation.exports.tables import Row
from foundation.rpc import context as call
from foundation.storage import Connection, Database, SealRing
from services.transcript import store
from services.transcript.chain import StoredEntry, StoredHead, ThreadKey, key_of, seal_head
from services.transcript.export_parts import ENTRIES, NAMES, PARTS, REDACTIONS, names_of
from services.transcript.reading import corrupt
from services.transcript.verifying import verified


def register(kernel: Kernel, db: Database) -> None:
    """Serve both sides."""
    servicer = Exports(db, kernel.ring)
    kernel.register(add_TranscriptExportServiceServicer_to_server, servicer)
    kernel.register(add_TranscriptImportServiceServicer_to_server, servicer)


class Exports(TranscriptExportServiceServicer, TranscriptImportServiceServicer):
    """Public: export. Internal: import."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring

    async def ExportTranscript(
        self, request: pb.ExportTranscriptRequest, context: object
    ) -> AsyncIterator[pb.ExportTranscriptResponse]:
        key = ThreadKey(call.workspace(), request.session_id, request.cut.thread_id)
        head = request.cut.head
        noted = (ids.new("access"), "export", call.current().request_id, head.seq, head.digest)
        async with self._db.commit("transcript.note_access") as connection:
            await connection.execute(store.NOTE_ACCESS, *key, *noted)
        async for chunk in exports.chunks("transcript", self._lines(key, head)):
            yield pb.ExportTranscriptResponse(lines=chunk)

    async def ImportTranscript(
        self, request_iterator: AsyncIterator[pb.ImportTranscriptRequest], context: object
    ) -> AsyncIterator[pb.ImportTranscriptResponse]:
        begin, lines = await exports.received("transcript", request_iterator)
        key = key_of(begin.thread)
        count = await restored(
            self._db,
            "transcript.import",
            key,
            PARTS,
            lines,
            lambda: self._lines(key, begin.cut.head),
            partial(self._add, key, begin, lines),
        )
        yield pb.ImportTranscriptResponse(lines=count)

    async def _lines(self, key: ThreadKey, head: Head) -> AsyncIterator[bytes]:
        """The entries up to a head; raises CORRUPT where one does not hold, or another is there."""
        seq, digest = 0, b""
        async for page in ENTRIES.pages(self._db, self._ring, key, (head.seq,)):
            for row in page:
                seq += 1
                entry = StoredEntry(*[row[name] for name in StoredEntry._fields])
                if entry.seq != seq:
                    raise corrupt(seq, "is missing")
                if entry.digest_behind(key, digest) != entry.digest:
                    raise corrupt(seq, "does not match its digest")
                content = entry.content
                if content is not None and _committed(content) != entry.commitment:
                    raise corrupt(seq, "has content that does not match its digest")
                digest = entry.digest
                yield ENTRIES.line(row)
        if (seq, digest) != (head.seq, head.digest):
            raise corrupt(head.seq, "is not the one that the ledger recorded")
        async for page in REDACTIONS.pages(self._db, self._ring, key, (head.seq,)):
            for row in page:
                yield REDACTIONS.line(row)

    async def _add(
        self, key: ThreadKey, begin: Begin, lines: AsyncIterator[Line], connection: Connection
    ) -> int:
        names, last = list[Row](), Head()

        async def seen(kind: str, row: Row) -> None:
            if kind != ENTRIES.kind:
                return
            last.seq, last.digest = row["seq"], row["digest"]
            names.extend(names_of(row))

        count = await exports.restore(connection, self._ring, key, PARTS, lines, seen)
        if last != begin.cut.head:
            raise exports.refused(f"the entries do not end with entry {begin.cut.head.seq}")
        if not count:
            return 0
        await connection.executemany(
            NAMES.insert, [NAMES.sealed(self._ring, key, row) for row in names]
        )
        head = StoredHead(last.seq, last.digest, begin.cut.epoch, False)
        seal = seal_head(self._ring, key, head)
        await connection.execute(store.PUT_HEAD, *key, head.seq, head.digest, head.epoch_max, seal)
        await self._check(connection, key)
        return count

    async def _check(self, connection: Connection, key: ThreadKey) -> None:
        """Refuse entries that do not verify where they stand now."""
        found = await verified(connection, self._ring, key)
        broken = next((one for one in found.findings if not one.informational), None)
        if broken is not None:
            raise exports.refused(f"transcript entry {broken.seq}: {broken.message}")


def _committed(salted: bytes) -> bytes:
    return commitment(salted[:SALT_BYTES], salted[SALT_BYTES:])
