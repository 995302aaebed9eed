"""`counterfoil export` and `counterfoil import`."""

import os
import sys
from contextlib import aclosing
from pathlib import Path

from counterfoil.ledger.v1 import export_pb2, export_pb2_grpc

from cli.operator import channel
from cli.progress import waiting
from foundation.durable import fsync_folder
from foundation.settings import Settings
from gateway import exports


async def export_session(settings: Settings, session_id: str, output: Path | None) -> None:
    """Write a session's export into a file, which is there only when it is whole, or to standard
    output. Raises Failure, OSError."""
    if output is None:
        await _write(settings, session_id, sys.stdout.fileno())
        return
    partial = output.with_name(f".{output.name}.partial")
    with partial.open("wb") as file, waiting(f"Exporting {session_id} …"):
        os.fchmod(file.fileno(), 0o600)
        try:
            await _write(settings, session_id, file.fileno())
            os.fsync(file.fileno())
            partial.replace(output)
        except BaseException:
            partial.unlink()
            raise
    fsync_folder(output.parent.absolute())


async def _write(settings: Settings, session_id: str, fd: int) -> None:
    key = settings.api_key.get_secret_value()
    async with (
        channel(settings, "ledger", key) as ledger,
        channel(settings, "transcript", key) as transcript,
        channel(settings, "journal", key) as journal,
        channel(settings, "context", key) as context,
        channel(settings, "files", key) as files,
    ):
        others = {
            "transcript": transcript,
            "journal": journal,
            "context": context,
            "files": files,
        }
        following = exports.following(lambda service: others[service].as_channel())
        stub = export_pb2_grpc.LedgerExportServiceStub(ledger.as_channel())
        first = stub.ExportLedger(export_pb2.ExportLedgerRequest(session_id=session_id))
        async with aclosing(exports.joined(first, following, session_id, None)) as pieces:
            async for piece in pieces:
                view = memoryview(piece)
                while view:
                    view = view[os.write(fd, view) :]
