"""Erases what is kept of a tool call's outcome, or of its input, for good.

What the model saw of it is known by its digest, which history refers to: the digest stays, sealed,
in a record that also says that the body is gone because it was redacted. A body that is missing
without such a record is damage.
"""

from counterfoil.journal.v1 import journal_pb2 as pb

from foundation import ids, projections
from foundation.errors import deleted, not_found
from foundation.rpc import context as call
from foundation.storage import Connection, Database, Record, SealRing
from services.journal import redaction_store as store
from services.journal.drafts import check_kind, refused
from services.journal.rows import Erased, ThreadKey, Vault, operation_of


class Eraser:
    """Erases outcomes of one database."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring

    async def redact(self, request: pb.RedactOperationRequest) -> pb.RedactOperationResponse:
        """Erase an outcome or an input, or what is left of it; raises what the contract says."""
        key, id = ThreadKey.of(request.thread), request.operation_id
        vault = Vault(self._ring, key)
        async with self._db.commit("journal.redact") as c:
            row = await store.locked(c, key, id)
            if row is None:
                raise not_found("operation", id)
            if row["is_deleted"]:
                raise deleted(key.thread_id)
            asked = (call.current().request_id, request.reader, request.reason)
            await store.note(c, key, ids.new("access"), *asked)
            if request.input:
                check_kind(operation_of(row), pb.OPERATION_KIND_TOOL_CALL)
                return pb.RedactOperationResponse(created=await store.erase_input(c, key, id))
            erased = await self._erased(c, key, vault, row)
            await store.erase(c, key, id)
        return pb.RedactOperationResponse(
            artifact_ids=erased.artifact_ids, created=row["redaction"] is None
        )

    async def _erased(self, c: Connection, key: ThreadKey, vault: Vault, row: Record) -> Erased:
        """The record of an erasure, stored when there is none yet."""
        id = row["operation_id"]
        if row["redaction"] is not None:
            return vault.open_erased(id, row["redaction"])
        operation = operation_of(row)
        check_kind(operation, pb.OPERATION_KIND_TOOL_CALL)
        if operation.projection is None:
            raise refused(id, "has no outcome")
        body = vault.open_projection(id, operation.projection)
        try:
            refs = projections.collect_refs(body)
        except ValueError:
            refs = ()  # of another version: it refers to nothing that can be found
        made = Erased(projections.digest(body), list(refs))
        await store.insert(c, key, id, vault.seal_erased(id, made))
        return made
