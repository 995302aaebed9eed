"""The ledger as lines: the public log, and the state that one moment shows.

State is read in one snapshot and held compressed while the log, of which nothing before the moment
can change, is read page by page.
"""

import zlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from importlib.metadata import version

from counterfoil.ledger.v1 import export_pb2 as pb
from counterfoil.ledger.v1.export_pb2_grpc import (
    LedgerExportServiceServicer,
    LedgerImportServiceServicer,
    add_LedgerExportServiceServicer_to_server,
    add_LedgerImportServiceServicer_to_server,
)
from counterfoil.ledger.v1.turn_pb2 import LogPoint
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.export_pb2 import ExportCut

from foundation import exports, json
from foundation.bootstrap import Kernel
from foundation.errors import Failure, not_found, wrong_state
from foundation.exports import HEX, INT, TEXT, TIME, Begin, Line
from foundation.exports.lines import line
from foundation.exports.tables import Row
from foundation.rpc.context import workspace
from foundation.storage import Connection, Database, SealRing
from services.ledger import export_store, session_store
from services.ledger.export_parts import LOG, PARTS, REDACTIONS, SESSION, STATE, THREAD
from services.ledger.ids import known
from services.ledger.verify import Verifier

_HELD_LINES = 500
_BEGIN = "export.begin"


def register(kernel: Kernel, db: Database, verifier: Verifier) -> None:
    """Serve both sides."""
    servicer = Exports(db, kernel.ring, verifier)
    kernel.register(add_LedgerExportServiceServicer_to_server, servicer)
    kernel.register(add_LedgerImportServiceServicer_to_server, servicer)


class Exports(LedgerExportServiceServicer, LedgerImportServiceServicer):
    """Public: export. Internal: import."""

    def __init__(self, db: Database, ring: SealRing, verifier: Verifier) -> None:
        self._db = db
        self._ring = ring
        self._verifier = verifier

    async def ExportLedger(
        self, request: pb.ExportLedgerRequest, context: object
    ) -> AsyncIterator[pb.ExportLedgerResponse]:
        key = workspace(), known(request.session_id)
        async with self._db.read() as connection:
            found = await export_store.moment(connection, *key)
            if found is None:
                raise not_found("session", key[1])
            if await export_store.copies_history(connection, *key):
                raise wrong_state(f"session {key[1]} is a fork whose history is being copied")
            cut = await export_store.cut(connection, *key, found)
            held = await self._state(connection, key)
        point = LogPoint(position=found["log_position"], digest=found["log_digest"])
        await self._verifier.record("export", *key, point)
        yield pb.ExportLedgerResponse(cut=cut)
        lines = self._lines(key, _begin(key, cut, point), point, held)
        async for chunk in exports.chunks("ledger", lines):
            yield pb.ExportLedgerResponse(lines=chunk)

    async def ImportLedger(
        self, request_iterator: AsyncIterator[pb.ImportLedgerRequest], context: object
    ) -> AsyncIterator[pb.ImportLedgerResponse]:
        begin, lines = await exports.received("ledger", request_iterator)
        key = begin.thread.workspace_id, known(begin.thread.session_id)
        async with self._db.commit("ledger.import") as connection:
            if not await export_store.lock_absent(connection, key[1]):
                text = f"session {key[1]} is here already"
                raise Failure(reasons.ERROR_REASON_CONFLICT, text)
            count = await self._add(connection, key, begin, lines)
        yield pb.ImportLedgerResponse(lines=count)

    async def _state(self, connection: Connection, key: tuple[str, str]) -> list[bytes]:
        held, waiting = list[bytes](), list[bytes]()
        for part in STATE:
            async for page in part.pages(connection, self._ring, key):
                waiting += map(part.line, page)
                if len(waiting) >= _HELD_LINES:
                    held.append(zlib.compress(b"\n".join(waiting), 1))
                    waiting = []
        return [*held, zlib.compress(b"\n".join(waiting), 1)]

    async def _lines(
        self, key: tuple[str, str], begin: bytes, point: LogPoint, held: list[bytes]
    ) -> AsyncIterator[bytes]:
        yield begin
        for part in (LOG, REDACTIONS):
            async for page in part.pages(self._db, self._ring, key, (point.position,)):
                for row in page:
                    yield part.line(row)
        for some in held:
            for one in zlib.decompress(some).split(b"\n"):
                yield one

    async def _add(
        self, connection: Connection, key: tuple[str, str], begin: Begin, lines: AsyncIterator[Line]
    ) -> int:
        rows: dict[str, Row] = {}

        async def seen(kind: str, row: Row) -> None:
            if row.get("thread_id", begin.thread.thread_id) != begin.thread.thread_id:
                raise exports.refused("is of another thread", "thread_id")
            if kind in (THREAD, SESSION):
                if kind in rows:
                    raise exports.refused("a session has one such line")
                rows[kind] = row

        count = await exports.restore(connection, self._ring, key, PARTS, _behind(lines), seen)
        if THREAD not in rows or SESSION not in rows:
            raise exports.refused("the lines of the session or its thread are missing")
        thread, cut = rows[THREAD], begin.cut
        if (thread["head_seq"], thread["head_digest"]) != (cut.head.seq, cut.head.digest):
            raise exports.refused("the thread has another head than the export", "head_seq")
        await self._check(connection, key)
        await export_store.resume(connection, *key)
        return count

    async def _check(self, connection: Connection, key: tuple[str, str]) -> None:
        """Refuse a log that does not verify where it stands now."""
        found = await session_store.probe(connection, *key)
        if found is None or found.deleted:
            raise exports.refused("the session is deleted")
        audit = await self._verifier.audit(connection, *key, found)
        broken = next((one for one in audit.findings if not one.informational), None)
        if broken is not None:
            raise exports.refused(f"log position {broken.seq}: {broken.message}")


def _begin(key: tuple[str, str], cut: ExportCut, point: LogPoint) -> bytes:
    return line(
        _BEGIN,
        [
            *TEXT.write("workspace_id", key[0]),
            *TEXT.write("session_id", key[1]),
            *TIME.write("exported_at", datetime.now(UTC)),
            *TEXT.write("product", f"counterfoil {version('counterfoil')}"),
            *INT.write("log_position", point.position),
            *HEX.write("log_digest", point.digest),
            ("cut", json.encode(cut)),
        ],
    )


async def _behind(lines: AsyncIterator[Line]) -> AsyncIterator[Line]:
    """The lines behind the one that begins the export; it told what is imported."""
    first = await anext(lines, None)
    if first is None or first.kind != _BEGIN:
        raise exports.refused(f"an export begins with a line of the type {_BEGIN!r}")
    async for one in lines:
        yield one
