"""What the model saw, as lines: records of what was lost, and the recipes of every request.

The fence is derived: its counts are those of the lines, its epoch is the ledger's.
"""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from counterfoil.context.v1 import export_pb2 as pb
from counterfoil.context.v1.export_pb2_grpc import (
    ContextExportServiceServicer,
    ContextImportServiceServicer,
    add_ContextExportServiceServicer_to_server,
    add_ContextImportServiceServicer_to_server,
)
from counterfoil.types.v1.export_pb2 import ExportCut

from foundation import exports, ids
from foundation.exports import Begin, Line
from foundation.exports.cuts import turns_of
from foundation.exports.restoring import restored
from foundation.exports.tables import Row
from foundation.rpc import context as call
from foundation.storage import Connection, Database, SealRing
from services.context import export_store, store
from services.context.export_parts import (
    ALL,
    CHECKPOINTS,
    OWN,
    PARTS,
    RECORDS,
    SNAPSHOTS,
    TRANSITIONS,
    with_names,
)
from services.context.losses import NO_LOSSES
from services.context.recipe import ThreadKey, thread_key
from services.context.records import decode_checkpoint, decode_transition
from services.context.snapshots import Snapshots

if TYPE_CHECKING:
    from foundation.bootstrap import Kernel


def register(kernel: "Kernel", db: Database, snapshots: Snapshots) -> None:
    """Serve both sides."""
    servicer = Exports(db, kernel.ring, snapshots)
    kernel.register(add_ContextExportServiceServicer_to_server, servicer)
    kernel.register(add_ContextImportServiceServicer_to_server, servicer)


class Exports(ContextExportServiceServicer, ContextImportServiceServicer):
    """Public: export. Internal: import."""

    def __init__(self, db: Database, ring: SealRing, snapshots: Snapshots) -> None:
        self._db = db
        self._ring = ring
        self._snapshots = snapshots

    async def ExportContext(
        self, request: pb.ExportContextRequest, context: object
    ) -> AsyncIterator[pb.ExportContextResponse]:
        key = call.workspace(), request.session_id, request.cut.thread_id
        noted = ("export", call.current().request_id, "")
        await store.note_access(self._db, ids.new("access"), key, *noted)
        async for chunk in exports.chunks("context", self._lines(key, request.cut)):
            yield pb.ExportContextResponse(lines=chunk)

    async def ImportContext(
        self, request_iterator: AsyncIterator[pb.ImportContextRequest], context: object
    ) -> AsyncIterator[pb.ImportContextResponse]:
        begin, lines = await exports.received("context", request_iterator)
        key = thread_key(begin.thread)
        count = await restored(
            self._db,
            "context.import",
            key,
            OWN,
            lines,
            lambda: self._lines(key, begin.cut),
            partial(self._add, key, begin, lines),
        )
        yield pb.ImportContextResponse(lines=count)

    async def _lines(self, key: ThreadKey, cut: ExportCut) -> AsyncIterator[bytes]:
        names = await self._names(key)
        for name, address in sorted((name, address) for address, name in names.items()):
            body = await self._snapshots.part(key, address)
            yield PARTS.line({"address": name, "body_sealed": body})
        turns = turns_of(cut)
        known = await export_store.records_known(self._db, key, turns, cut.epoch)
        for part in RECORDS:
            async for page in part.pages(self._db, self._ring, key, (known,)):
                for row in page:
                    yield part.line(row)
        async for page in SNAPSHOTS.pages(self._db, self._ring, key, (*turns, cut.epoch)):
            for row in page:
                row["recipe_sealed"] = with_names(row["recipe_sealed"], names)
                yield SNAPSHOTS.line(row)

    async def _names(self, key: ThreadKey) -> dict[bytes, bytes]:
        """The digests of a thread's parts by their addresses."""
        workspace, *used = key
        return {
            row["address"]: hashlib.sha256(row["body_sealed"]).digest()
            async for page in PARTS.pages(self._db, self._ring, (workspace,), used)
            for row in page
        }

    async def _add(
        self, key: ThreadKey, begin: Begin, lines: AsyncIterator[Line], connection: Connection
    ) -> int:
        arriving = _Arriving(self._snapshots, key)
        count = await exports.restore(connection, self._ring, key, ALL, lines, arriving.seen)
        if count:
            await export_store.put_part_uses(connection, key, list(arriving.addresses.values()))
            counts = (arriving.snapshots, arriving.version)
            await export_store.put_fence(connection, key, begin.cut.epoch, *counts)
        return count


class _Arriving:
    """What was seen of an import; refuses what does not hold together."""

    def __init__(self, snapshots: Snapshots, key: ThreadKey) -> None:
        self._snapshots = snapshots
        self._key = key
        self._losses = NO_LOSSES
        self.addresses: dict[bytes, bytes] = {}
        """Where the parts are here, by their digests."""
        self.snapshots = 0
        self.version = 0

    async def seen(self, kind: str, row: Row) -> None:
        """The next row; what names parts is changed to where they are here."""
        self.version = max(self.version, row.get("version", 0))
        try:
            if kind == PARTS.kind:
                await self._part(row)
            elif kind == TRANSITIONS.kind:
                self._transition(row)
            elif kind == CHECKPOINTS.kind and row["sealed"] is not None:
                decode_checkpoint(row["sealed"])
            elif kind == SNAPSHOTS.kind:
                self.snapshots = max(self.snapshots, row["ordinal"])
                row["recipe_sealed"] = with_names(row["recipe_sealed"], self.addresses)
        except msgspec.DecodeError:
            raise exports.refused("what is sealed cannot be read") from None
        except KeyError:
            raise exports.refused("names a part that no line before it holds") from None

    async def _part(self, row: Row) -> None:
        name, body = row["address"], row["body_sealed"]
        if hashlib.sha256(body).digest() != name:
            raise exports.refused("is not the digest of the part", "address")
        row["address"] = await self._snapshots.address(self._key, body)
        self.addresses[name] = row["address"]

    def _transition(self, row: Row) -> None:
        one = decode_transition(row)
        losses = self._losses.with_transitions([one], row["version"])
        if (losses.count, losses.digest) != (row["hw"], row["chain_digest"]):
            raise exports.refused("does not continue the chain of transitions", "chain_digest")
        # Only the head of the chain is kept.
        self._losses = replace(NO_LOSSES, count=losses.count, digest=losses.digest)
