"""Copies decided tool calls of one thread into another, whose history refers to them.

What the model sees of a call is all that a copied history needs: inputs, receipts and raw outcomes
stay with the call that ran. A call that may have run stays one that may have run.
"""

from collections.abc import Sequence

from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import ids, projections
from foundation.errors import Failure, not_found
from foundation.storage import Database, Record, SealRing
from services.journal import store
from services.journal.projection import digested
from services.journal.records import TRIES, Records, contended
from services.journal.rows import Kept, Role, Source, ThreadKey


class Copier:
    """Copies operations between the threads of one database."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring

    async def copy(self, request: pb.CopyOperationsRequest) -> pb.CopyOperationsResponse:
        """Copy what is not there yet; raises what the contract says."""
        key, source = ThreadKey.of(request.fence.thread), ThreadKey.of(request.source)
        if source.workspace_id != key.workspace_id:
            raise not_found("thread", source.thread_id)
        target = Records(self._db, self._ring, key)
        kept, rows = await self._read(source, request.operation_ids)
        for _ in range(TRIES):
            if await self._db.commit_one(
                "journal.copy", store.COPY, *key, request.fence.epoch, *_columns(target, kept, rows)
            ):
                return pb.CopyOperationsResponse(artifact_ids=_artifacts(kept))
            (await target.see([])).admit(key, request.fence.epoch)
        raise contended(key)

    async def _read(
        self, source: ThreadKey, wanted: Sequence[str]
    ) -> tuple[list[Kept], list[Record]]:
        """The outcomes as rows to be, and the operations' rows, in the same order."""
        vault = Records(self._db, self._ring, source).vault
        rows = await self._db.fetch(store.COPIED, *source, list(dict.fromkeys(wanted)))
        found = {row["operation_id"] for row in rows}
        missing = next((id_ for id_ in wanted if id_ not in found), None)
        if missing is not None:
            raise Failure(
                reasons.ERROR_REASON_CORRUPT, f"operation {missing} has no outcome to copy"
            )
        kept = [
            Kept(
                row["operation_id"],
                Role.DECIDED,
                Source(row["source"]),
                None,
                digested(
                    vault.open_projection(row["operation_id"], row["projection"]), row["redactor"]
                ),
            )
            for row in rows
        ]
        return kept, rows


def _columns(
    target: Records, kept: Sequence[Kept], rows: Sequence[Record]
) -> list[Sequence[object]]:
    """What COPY inserts, column by column."""
    thread_id = target.key.thread_id
    given = [
        (
            one.operation_id,
            row["state"],
            ids.copied("turn", thread_id, row["turn_id"]),
            row["round"],
            row["attempt_epoch"],
            row["attempt_number"],
            row["block_index"],
            row["owner"],
            row["tool_name"],
            row["tool_version"],
            row["created_at"],
            one.source,
            target.vault.sealed_projection(one),
            one.redactor,
        )
        for one, row in zip(kept, rows, strict=True)
    ]
    return [list(column) for column in zip(*given, strict=True)]


def _artifacts(kept: Sequence[Kept]) -> list[str]:
    found: dict[str, None] = {}
    for one in kept:
        if one.projected is not None:
            found.update(dict.fromkeys(projections.collect_refs(one.projected.body)))
    return list(found)
