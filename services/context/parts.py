"""Opens stored parts: what requests have in common, content-addressed and sealed."""

from collections.abc import Iterable

from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from foundation.storage import Database, SealRing
from services.context import recipe, store


class Parts:
    """The parts of all workspaces."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring

    async def open(self, workspace_id: str, addresses: Iterable[bytes]) -> dict[bytes, bytes]:
        """The parts at these addresses. Raises CORRUPT when one is missing."""
        wanted = set(addresses)
        found = await store.parts(self._db, workspace_id, sorted(wanted))
        if found.keys() != wanted:
            raise Failure(reasons.ERROR_REASON_CORRUPT, "a part of the snapshot is missing")
        return {
            address: self._ring.open(body, *recipe.part_identity(workspace_id, address))
            for address, body in found.items()
        }

    async def one(self, workspace_id: str, address: bytes) -> bytes:
        """The part at an address. Raises CORRUPT when it is missing."""
        return (await self.open(workspace_id, [address]))[address]
