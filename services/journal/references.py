"""Which artifacts a session's outcomes refer to: what a collector must leave alone.

The base projection of every outcome counts, in every thread and whatever became of it: an effective
history shows these or less (a transition may drop a reference and never adds one), and an outcome
that no history refers to yet is one whose turn still waits for other calls.
"""

from collections.abc import AsyncGenerator

from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import projections
from foundation.errors import Failure, deleted, not_found
from foundation.storage import Database, SealRing
from services.journal import store
from services.journal.rows import ThreadKey, Vault

_PAGE = 200


class References:
    """Reads what outcomes of one database refer to."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring

    async def collect(self, request: pb.CollectReferencesRequest) -> pb.CollectReferencesResponse:
        """All of a session; raises what the contract says."""
        session = (request.workspace_id, request.session_id)
        is_deleted = await self._db.fetchval(store.SESSION_STATE, *session)
        if is_deleted is None:
            raise not_found("session", session[1])
        if is_deleted:
            raise deleted(session[1])
        found: set[str] = set()
        async for body in self._projections(session):
            found.update(_references(body))
        return pb.CollectReferencesResponse(artifact_ids=sorted(found))

    async def _projections(self, session: tuple[str, str]) -> AsyncGenerator[bytes]:
        last = ("", "")
        while rows := await self._db.fetch(store.PROJECTIONS, *session, *last, _PAGE):
            for row in rows:
                last = (row["thread_id"], row["operation_id"])
                vault = Vault(self._ring, ThreadKey(*session, last[0]))
                yield vault.open_projection(last[1], row["projection"])


def _references(body: bytes) -> tuple[str, ...]:
    try:
        return projections.collect_refs(body)
    except ValueError:
        raise Failure(
            reasons.ERROR_REASON_CORRUPT, "a projection is of an unknown version"
        ) from None
