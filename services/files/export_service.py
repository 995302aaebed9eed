"""Artifacts as lines, with their bytes.

They are staged one by one, as tools stage theirs: what is there already is found, not stored again.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from counterfoil.files.v1 import artifacts_pb2
from counterfoil.files.v1 import export_pb2 as pb
from counterfoil.files.v1.artifacts_pb2_grpc import ArtifactServiceServicer
from counterfoil.files.v1.export_pb2_grpc import (
    FilesExportServiceServicer,
    FilesImportServiceServicer,
    add_FilesExportServiceServicer_to_server,
    add_FilesImportServiceServicer_to_server,
)

from foundation import exports
from foundation.exports import Line
from foundation.rpc import context as call
from foundation.storage import Database
from services.files import store
from services.files.export_parts import artifact_line, artifact_row, check_artifact
from services.files.store import SessionKey
from services.files.vault import Vault

if TYPE_CHECKING:
    from foundation.bootstrap import Kernel

_PAGE = 500
_READABLE = (artifacts_pb2.ARTIFACT_STATE_LIVE, artifacts_pb2.ARTIFACT_STATE_CONDEMNED)


def register(
    kernel: "Kernel", db: Database, vault: Vault, artifacts: ArtifactServiceServicer
) -> None:
    """Serve both sides."""
    servicer = Exports(db, vault, artifacts)
    kernel.register(add_FilesExportServiceServicer_to_server, servicer)
    kernel.register(add_FilesImportServiceServicer_to_server, servicer)


class Exports(FilesExportServiceServicer, FilesImportServiceServicer):
    """Public: export. Internal: import."""

    def __init__(self, db: Database, vault: Vault, artifacts: ArtifactServiceServicer) -> None:
        self._db = db
        self._vault = vault
        self._artifacts = artifacts

    async def ExportFiles(
        self, request: pb.ExportFilesRequest, context: object
    ) -> AsyncIterator[pb.ExportFilesResponse]:
        key = call.workspace(), request.session_id
        async for chunk in exports.chunks("files", self._lines(key)):
            yield pb.ExportFilesResponse(lines=chunk)

    async def ImportFiles(
        self, request_iterator: AsyncIterator[pb.ImportFilesRequest], context: object
    ) -> AsyncIterator[pb.ImportFilesResponse]:
        begin, lines = await exports.received("files", request_iterator)
        key, count = (begin.thread.workspace_id, begin.thread.session_id), 0
        async for one in lines:
            await self._stage(key, one)
            count += 1
        yield pb.ImportFilesResponse(lines=count)

    async def _lines(self, key: SessionKey) -> AsyncIterator[bytes]:
        after = ""
        while rows := await store.artifacts(self._db, key, after, _PAGE):
            for row in rows:
                if row["state"] not in _READABLE:
                    continue
                found = await store.get(self._db, key, row["artifact_id"])
                if found is None:  # collected meanwhile: nothing refers to it
                    continue
                body = await self._vault.get(key[0], found["blob_id"], found["sha256"])
                yield artifact_line({**dict(row), "body": body})
            after = rows[-1]["artifact_id"]

    async def _stage(self, key: SessionKey, one: Line) -> None:
        row = artifact_row(one)
        check_artifact(key[0], row, one.number)
        request = artifacts_pb2.StageArtifactRequest(
            workspace_id=key[0],
            session_id=key[1],
            media_type=row["media_type"],
            role=row["role"],
            operation_id=row["operation_id"],
            body=row["body"],
        )
        stage: Any = self._artifacts.StageArtifact
        await stage(request, None)
