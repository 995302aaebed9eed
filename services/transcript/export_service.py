"""The transcript as lines: entries with their salts, so that the chain verifies elsewhere, too.

The id map and the head row are derived from the entries and stand in no line.
"""

from collections.abc import AsyncIterator
from functools import partial

from counterfoil.transcript.v1 import export_pb2 as pb
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.transcript.v1.export_pb2_grpc import (
    TranscriptExportServiceServicer,
    TranscriptImportServiceServicer,
    add_TranscriptExportServiceServicer_to_server,
    add_TranscriptImportServiceServicer_to_server,
)
from counterfoil.types.v1.reference_pb2 import Head
from google.protobuf.message import DecodeError

from foundation import exports, ids
from foundation.bootstrap import Kernel
from foundation.digests import SALT_BYTES, commitment
from foundation.exports import (
    BASE64,
    HEX,
    UTF8,
    Begin,
    Line,
    Members,
    Salted,
    Sealed,
    TablePart,
    declared,
)
from foundation.exports.forms import embeddable, raw_items
from foundation.exports.lines import Pair
from foundation.exports.restoring import restored
from foundation.exports.tables import Row
from foundation.rpc import context as call
from foundation.storage import Connection, Database, SealRing
from services.transcript import store
from services.transcript.chain import StoredEntry, StoredHead, ThreadKey, key_of, seal_head
from services.transcript.reading import corrupt
from services.transcript.verifying import verified


class _Content:
    """Serialized content: its blocks as the JSON that they are, the rest of it as base64."""

    def write(self, name: str, value: bytes) -> list[Pair]:
        content = transcript_pb2.EntryContent.FromString(value)
        blocks = list(content.blocks)
        content.ClearField("blocks")
        rest = content.SerializeToString(deterministic=True)
        if not all(map(embeddable, blocks)) or _whole(blocks, rest) != value:
            return BASE64.write(f"{name}_base64", value)
        return [
            (f"{name}_blocks", b"[%b]" % b",".join(blocks)),
            *BASE64.write(f"{name}_rest", rest),
        ]

    def read(self, name: str, members: Members) -> bytes | None:
        if members.has(name):
            return BASE64.read(name, members)
        if members.has(f"{name}_base64"):
            return BASE64.read(f"{name}_base64", members)
        blocks = raw_items(f"{name}_blocks", members)
        try:
            return _whole(list(blocks), BASE64.read(f"{name}_rest", members) or b"")
        except DecodeError:
            raise exports.refused("is no serialized content", f"{name}_rest") from None


def _whole(blocks: list[bytes], rest: bytes) -> bytes:
    content = transcript_pb2.EntryContent.FromString(rest)
    del content.blocks[:]
    content.blocks.extend(blocks)
    return content.SerializeToString(deterministic=True)


_ENTRIES = TablePart(
    "transcript.entry",
    declared("services.transcript.schema", "transcript.entries"),
    forms={
        "content": Sealed(lambda key, row: ("entries", *key, row["seq"]), Salted(_Content())),
        "commitment": HEX,
        "digest": HEX,
    },
    condition="seq <= {0}",
    page_rows=16,
)
_REDACTIONS = TablePart(
    "transcript.redaction",
    declared("services.transcript.schema", "transcript.redactions"),
    forms={"seal": Sealed(lambda key, row: ("redactions", *key, row["seq"]), HEX)},
    condition="seq <= {0}",
)
_NAMES = TablePart(
    "",
    declared("services.transcript.schema", "transcript.id_map"),
    forms={
        "provider_tool_use_id": Sealed(
            lambda key, row: ("id_map", *key, row["seq"], row["block_index"]), UTF8
        )
    },
)
_PARTS = {part.kind: part for part in (_ENTRIES, _REDACTIONS)}


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
            _PARTS,
            lines,
            lambda: self._lines(key, begin.cut.head),
            partial(self._add, key, begin, lines),
        )
        yield pb.ImportTranscriptResponse(lines=count)

    async def _lines(self, key: ThreadKey, head: Head) -> AsyncIterator[bytes]:
        """The entries up to a head; raises CORRUPT where one does not hold, or another is there."""
        seq, digest = 0, b""
        async for page in _ENTRIES.pages(self._db, self._ring, key, (head.seq,)):
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
                yield _ENTRIES.line(row)
        if (seq, digest) != (head.seq, head.digest):
            raise corrupt(head.seq, "is not the one that the ledger recorded")
        async for page in _REDACTIONS.pages(self._db, self._ring, key, (head.seq,)):
            for row in page:
                yield _REDACTIONS.line(row)

    async def _add(
        self, key: ThreadKey, begin: Begin, lines: AsyncIterator[Line], connection: Connection
    ) -> int:
        names, last = list[Row](), Head()

        async def seen(kind: str, row: Row) -> None:
            if kind != _ENTRIES.kind:
                return
            last.seq, last.digest = row["seq"], row["digest"]
            names.extend(_names(row))

        count = await exports.restore(connection, self._ring, key, _PARTS, lines, seen)
        if last != begin.cut.head:
            raise exports.refused(f"the entries do not end with entry {begin.cut.head.seq}")
        if not count:
            return 0
        await connection.executemany(
            _NAMES.insert, [_NAMES.sealed(self._ring, key, row) for row in names]
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


def _names(row: Row) -> list[Row]:
    """The rows of the id map that belong to an entry."""
    if row["content"] is None:
        return []
    content = transcript_pb2.EntryContent.FromString(row["content"][SALT_BYTES:])
    return [
        {
            "seq": row["seq"],
            "block_index": one.block_index,
            "operation_id": one.operation_id,
            "event_id": one.event_id,
            "provider_tool_use_id": one.provider_tool_use_id.encode(),
        }
        for one in content.mappings
    ]
