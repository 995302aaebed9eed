"""SQL of the public log."""

from dataclasses import dataclass

from foundation.storage import Connection

_ERASE = """
UPDATE ledger.log SET sealed = NULL
WHERE workspace_id = $1 AND session_id = $2 AND sealed IS NOT NULL
"""

_ACCESS = """
INSERT INTO ledger.access (id, workspace_id, session_id, action, request_id, position, digest)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""


async def erase(connection: Connection, workspace_id: str, session_id: str) -> None:
    """Take every body and salt away; the chain still verifies. Idempotent."""
    await connection.execute(_ERASE, workspace_id, session_id)


@dataclass(frozen=True, slots=True)
class Access:
    """A look behind the public surface, to be recorded."""

    id: str
    workspace_id: str
    session_id: str
    action: str
    request_id: str
    position: int
    digest: bytes


async def record_access(connection: Connection, access: Access) -> None:
    """Add an access record."""
    await connection.execute(
        _ACCESS,
        access.id,
        access.workspace_id,
        access.session_id,
        access.action,
        access.request_id,
        access.position,
        access.digest,
    )
