"""Recomputes a session's log end to end, and leaves an access record with the head."""

from counterfoil.ledger.v1 import turn_pb2

from foundation import ids
from foundation.errors import not_found
from foundation.rpc import context
from foundation.storage import Connection, Database, SealRing
from services.ledger import log_page_store, log_store, redaction_store
from services.ledger.log_probe import SessionHead, SessionProbe
from services.ledger.verify_audit import Audit, stored

_PAGE_ROWS = 200


class Verifier:
    """Verifies the logs of one database."""

    def __init__(self, db: Database, ring: SealRing, probe: SessionProbe) -> None:
        self._db = db
        self._ring = ring
        self._probe = probe

    async def verify(
        self, workspace_id: str, session_id: str, expected: turn_pb2.LogPoint | None = None
    ) -> turn_pb2.VerifyLogResponse:
        """What does not hold, first bad position first; findings about the head row (0) last.

        One snapshot is read. `expected` is a head that was kept outside the database. The caller
        fills in `thread`. Deleted sessions verify too: their content is reported as erased. Raises
        NOT_FOUND.
        """
        async with self._db.read() as connection:
            found = await self._probe(connection, workspace_id, session_id)
            if found is None:
                raise not_found("session", session_id)
            audit = await self.audit(connection, workspace_id, session_id, found)
        if expected is not None:
            audit.expected(expected)
        response = turn_pb2.VerifyLogResponse(
            head=turn_pb2.LogPoint(position=audit.position, digest=audit.digest),
            entries=audit.entries,
            findings=sorted(audit.findings, key=lambda found: (found.seq == 0, found.seq)),
            vouches=audit.vouches,
            points=audit.points,
        )
        await self.record("verify", workspace_id, session_id, response.head)
        return response

    async def record(
        self, action: str, workspace_id: str, session_id: str, head: turn_pb2.LogPoint
    ) -> None:
        """Leave an access record: who looks behind the public surface is seen to do so."""
        access = log_store.Access(
            ids.new("access"),
            workspace_id,
            session_id,
            action,
            context.current().request_id,
            head.position,
            head.digest,
        )
        async with self._db.commit("ledger.access") as connection:
            await log_store.record_access(connection, access)

    async def audit(
        self, connection: Connection, workspace_id: str, session_id: str, found: SessionHead
    ) -> Audit:
        """What a connection sees of a log whose session has the head `found`."""
        redactions = await redaction_store.redactions(connection, (workspace_id, session_id))
        audit = Audit(self._ring, workspace_id, session_id, redactions)
        after = 0
        while True:
            rows = await log_page_store.rows(
                connection, workspace_id, session_id, after, _PAGE_ROWS
            )
            for row in rows:
                audit.row(stored(row))
            if len(rows) < _PAGE_ROWS:
                break
            after = rows[-1]["position"]
        audit.queued(await log_page_store.queued_positions(connection, workspace_id, session_id))
        audit.head(found.head)
        return audit
