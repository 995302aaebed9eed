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
from services.journal.projection import Projected, digested
from services.journal.records import TRIES, Records, contended
from services.journal.rows import Erased, Kept, Role, Source, ThreadKey, Vault


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
        vault = Vault(self._ring, source)
        kept, rows = await self._read(vault, source, request.operation_ids)
        columns = _columns(vault, target, kept, rows)
        for _ in range(TRIES):
            if await self._db.commit_one(
                "journal.copy",
                store.COPY,
                *key,
                request.fence.epoch,
                *columns,
            ):
                return pb.CopyOperationsResponse(artifact_ids=_artifacts(kept))
            (await target.see([])).admit(key, request.fence.epoch)
        raise contended(key)

    async def _read(
        self, vault: Vault, source: ThreadKey, wanted: Sequence[str]
    ) -> tuple[list[Kept], list[Record]]:
        """The outcomes as rows to be, and the operations' rows, in the same order."""
        rows = await self._db.fetch(store.COPIED, *source, list(dict.fromkeys(wanted)))
        found = {row["operation_id"] for row in rows}
        missing = next((id_ for id_ in wanted if id_ not in found), None)
        if missing is not None:
            raise Failure(
                reasons.ERROR_REASON_CORRUPT, f"operation {missing} has no outcome to copy"
            )
        kept = [
            Kept(row["operation_id"], Role.DECIDED, Source(row["source"]), None, _shown(vault, row))
            for row in rows
        ]
        return kept, rows


def _columns(
    source: Vault, target: Records, kept: Sequence[Kept], rows: Sequence[Record]
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
            _erased(source, target.vault, row),
        )
        for one, row in zip(kept, rows, strict=True)
    ]
    return [list(column) for column in zip(*given, strict=True)]


def _shown(vault: Vault, row: Record) -> Projected | None:
    """What the model sees of an outcome; None of one that was redacted."""
    if row["redaction"] is not None:
        return None
    body = vault.open_projection(row["operation_id"], row["projection"])
    return digested(body, row["redactor"])


def _erased(source: Vault, target: Vault, row: Record) -> bytes | None:
    """The record of a redaction for the copy, which owns none of the artifacts."""
    id, sealed = row["operation_id"], row["redaction"]
    if sealed is None:
        return None
    return target.seal_erased(id, Erased(source.open_erased(id, sealed).digest, []))


def _artifacts(kept: Sequence[Kept]) -> list[str]:
    found: dict[str, None] = {}
    for one in kept:
        if one.projected is not None:
            found.update(dict.fromkeys(projections.collect_refs(one.projected.body)))
    return list(found)
