"""What a workspace may look up in its session: who has to answer, and whether its log holds."""

from counterfoil.ledger.v1 import inspection_pb2, turn_pb2
from counterfoil.types.v1 import runtime_pb2

from foundation.errors import not_found
from foundation.storage import Database
from services.ledger import pending_store
from services.ledger.log_probe import Reader, SessionProbe
from services.ledger.verify import Verifier

_RESULT = "user.custom_tool_result"
_CONFIRMATION = "user.tool_confirmation"


class Inspection:
    """Looks into the sessions of one database."""

    def __init__(self, db: Database, probe: SessionProbe, verifier: Verifier) -> None:
        self._db = db
        self._probe = probe
        self._verifier = verifier

    async def pending_actions(
        self, workspace_id: str, session_id: str
    ) -> inspection_pb2.ListPendingActionsResponse:
        """The open actions of one moment; raises NOT_FOUND."""
        async with self._db.read() as connection:
            await self._present(connection, workspace_id, session_id)
            rows = await pending_store.pending(connection, workspace_id, session_id)
        response = inspection_pb2.ListPendingActionsResponse()
        for row in rows:
            custom = row["owner"] == runtime_pb2.TOOL_OWNER_CLIENT_CUSTOM
            action = response.data.add(
                event_id=row["use_event_id"],
                event_type=row["event_type"],
                answer_type=_RESULT if custom else _CONFIRMATION,
                name=row["name"].decode(),
                session_thread_id=row["thread_id"],
            )
            action.opened_at.FromDatetime(row["processed_at"])
        return response

    async def verify(
        self, workspace_id: str, request: inspection_pb2.VerifySessionRequest
    ) -> inspection_pb2.VerifySessionResponse:
        """The verdict about the log; raises NOT_FOUND, also for a session that is deleted."""
        session_id = request.session_id
        await self._present(self._db, workspace_id, session_id)
        expected = _point(request.head) if request.HasField("head") else None
        found = await self._verifier.verify(workspace_id, session_id, expected)
        return inspection_pb2.VerifySessionResponse(
            session_id=session_id,
            holds=all(finding.informational for finding in found.findings),
            entries=found.entries,
            head=_text(found.head.position, found.head.digest),
            findings=[
                inspection_pb2.VerificationFinding(
                    position=finding.seq,
                    message=finding.message,
                    informational=finding.informational,
                )
                for finding in found.findings
            ],
            vouched_heads=[
                inspection_pb2.VouchedHead(
                    position=vouch.position,
                    transcript_head=_text(vouch.head.seq, vouch.head.digest),
                )
                for vouch in found.vouches
            ],
        )

    async def _present(self, reader: Reader, workspace_id: str, session_id: str) -> None:
        found = await self._probe(reader, workspace_id, session_id)
        if found is None or found.deleted:
            raise not_found("session", session_id)


def _text(number: int, digest: bytes) -> str:
    return f"{number}:{digest.hex()}"


def _point(text: str) -> turn_pb2.LogPoint:
    position, _, digest = text.partition(":")
    return turn_pb2.LogPoint(position=int(position), digest=bytes.fromhex(digest))
