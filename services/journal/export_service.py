"""The journal as lines: operations and their outcomes, open.

The fence is derived: its epoch is the ledger's.
"""

from collections.abc import AsyncIterator
from functools import partial

from counterfoil.journal.v1 import export_pb2 as pb
from counterfoil.journal.v1.export_pb2_grpc import (
    JournalExportServiceServicer,
    JournalImportServiceServicer,
    add_JournalExportServiceServicer_to_server,
    add_JournalImportServiceServicer_to_server,
)
from counterfoil.types.v1.export_pb2 import ExportCut

from foundation import exports, ids
from foundation.bootstrap import Kernel
from foundation.exports import Begin, Line
from foundation.exports.cuts import turns_of
from foundation.exports.restoring import restored
from foundation.rpc import context as call
from foundation.storage import Connection, Database, SealRing
from services.journal import store
from services.journal.export_parts import PARTS
from services.journal.rows import ThreadKey


def register(kernel: Kernel, db: Database) -> None:
    """Serve both sides."""
    servicer = Exports(db, kernel.ring)
    kernel.register(add_JournalExportServiceServicer_to_server, servicer)
    kernel.register(add_JournalImportServiceServicer_to_server, servicer)


class Exports(JournalExportServiceServicer, JournalImportServiceServicer):
    """Public: export. Internal: import."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring

    async def ExportJournal(
        self, request: pb.ExportJournalRequest, context: object
    ) -> AsyncIterator[pb.ExportJournalResponse]:
        key = ThreadKey(call.workspace(), request.session_id, request.cut.thread_id)
        current = call.current()
        noted = (current.request_id, current.api_key_id or "", "export", 0)
        async with self._db.commit("journal.note_access") as connection:
            await connection.execute(store.NOTE_ACCESS, *key, ids.new("access"), *noted)
        async for chunk in exports.chunks("journal", self._lines(key, request.cut)):
            yield pb.ExportJournalResponse(lines=chunk)

    async def ImportJournal(
        self, request_iterator: AsyncIterator[pb.ImportJournalRequest], context: object
    ) -> AsyncIterator[pb.ImportJournalResponse]:
        begin, lines = await exports.received("journal", request_iterator)
        key = ThreadKey.of(begin.thread)
        count = await restored(
            self._db,
            "journal.import",
            key,
            PARTS,
            lines,
            lambda: self._lines(key, begin.cut),
            partial(self._add, key, begin, lines),
        )
        yield pb.ImportJournalResponse(lines=count)

    async def _lines(self, key: ThreadKey, cut: ExportCut) -> AsyncIterator[bytes]:
        given = (*turns_of(cut), cut.epoch, list(cut.waiting_operation_ids))
        for part in PARTS.values():
            async for page in part.pages(self._db, self._ring, key, given):
                for row in page:
                    yield part.line(row)

    async def _add(
        self, key: ThreadKey, begin: Begin, lines: AsyncIterator[Line], connection: Connection
    ) -> int:
        count = await exports.restore(connection, self._ring, key, PARTS, lines)
        if count:
            await connection.execute(store.PUT_FENCE, *key, begin.cut.epoch)
        return count
