"""gRPC in and out of what clients may read of their sessions' snapshots."""

import re
from typing import Any

from counterfoil.context.v1 import snapshots_pb2 as pb
from counterfoil.context.v1 import snapshots_pb2_grpc
from counterfoil.ledger.v1 import turn_pb2, turn_pb2_grpc
from counterfoil.types.v1.reference_pb2 import ThreadRef

from foundation.errors import not_found
from foundation.rpc.context import workspace
from services.context.reading import Reading

_ID = re.compile(r"snap_[0-9a-z]{26}")


class ContextSnapshotServicer(snapshots_pb2_grpc.ContextSnapshotServiceServicer):
    """Public: what the model was sent.

    The ledger says whether the caller's workspace has a session: it alone knows one that has not
    asked the model yet, and one that has just been deleted.
    """

    def __init__(self, reading: Reading, turns: turn_pb2_grpc.TurnServiceStub) -> None:
        self._reading = reading
        self._turns = turns

    async def ListContextSnapshots(
        self, request: pb.ListContextSnapshotsRequest, context: Any
    ) -> pb.ListContextSnapshotsResponse:
        thread = await self._thread(request.session_id)
        return await self._reading.page(thread, request)

    async def GetContextSnapshot(
        self, request: pb.GetContextSnapshotRequest, context: Any
    ) -> pb.GetContextSnapshotResponse:
        thread = await self._thread(request.session_id)
        snapshot = await self._reading.one(thread, _known(request.snapshot_id))
        return pb.GetContextSnapshotResponse(snapshot=snapshot)

    async def RebuildContextSnapshot(
        self, request: pb.RebuildContextSnapshotRequest, context: Any
    ) -> pb.RebuildContextSnapshotResponse:
        thread = await self._thread(request.session_id)
        body = await self._reading.request(thread, _known(request.snapshot_id))
        return pb.RebuildContextSnapshotResponse(body=body)

    async def DiffContextSnapshots(
        self, request: pb.DiffContextSnapshotsRequest, context: Any
    ) -> pb.DiffContextSnapshotsResponse:
        thread = await self._thread(request.session_id)
        ids = _known(request.snapshot_id), _known(request.other_snapshot_id)
        return pb.DiffContextSnapshotsResponse(diff=await self._reading.difference(thread, *ids))

    async def _thread(self, session_id: str) -> ThreadRef:
        request = turn_pb2.LocateThreadRequest(session_id=session_id, workspace_id=workspace())
        return (await self._turns.LocateThread(request)).thread


def _known(id: str) -> str:
    """The id, unless it cannot be one of ours: such text never reaches the database."""
    if _ID.fullmatch(id) is None:
        raise not_found("snapshot", id[:80])
    return id
