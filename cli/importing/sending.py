"""Hands the lines of an export to the authorities; the ledger's come last, and with them the
session."""

import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from counterfoil.context.v1 import export_pb2 as context_pb2
from counterfoil.context.v1 import export_pb2_grpc as context_grpc
from counterfoil.files.v1 import export_pb2 as files_pb2
from counterfoil.files.v1 import export_pb2_grpc as files_grpc
from counterfoil.journal.v1 import export_pb2 as journal_pb2
from counterfoil.journal.v1 import export_pb2_grpc as journal_grpc
from counterfoil.ledger.v1 import export_pb2 as ledger_pb2
from counterfoil.ledger.v1 import export_pb2_grpc as ledger_grpc
from counterfoil.ledger.v1 import turn_pb2, turn_pb2_grpc
from counterfoil.registry.v1 import registry_pb2, registry_pb2_grpc
from counterfoil.transcript.v1 import export_pb2 as transcript_pb2
from counterfoil.transcript.v1 import export_pb2_grpc as transcript_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons

from cli.importing import exported
from cli.importing.checking import check
from cli.importing.exported import Exported, bad_line
from cli.importing.lines import Lines
from cli.operator import channel, service_key
from cli.progress import waiting
from foundation.errors import Failure
from foundation.exports import chunks
from foundation.settings import Settings


class _Target(NamedTuple):
    """Where the lines of one authority go."""

    service: str
    request: Any
    stub: Any
    method: str


_TARGETS = (
    _Target(
        "transcript",
        transcript_pb2.ImportTranscriptRequest,
        transcript_grpc.TranscriptImportServiceStub,
        "ImportTranscript",
    ),
    _Target(
        "journal",
        journal_pb2.ImportJournalRequest,
        journal_grpc.JournalImportServiceStub,
        "ImportJournal",
    ),
    _Target(
        "context",
        context_pb2.ImportContextRequest,
        context_grpc.ContextImportServiceStub,
        "ImportContext",
    ),
    _Target(
        "files", files_pb2.ImportFilesRequest, files_grpc.FilesImportServiceStub, "ImportFiles"
    ),
    _Target(
        "ledger",
        ledger_pb2.ImportLedgerRequest,
        ledger_grpc.LedgerImportServiceStub,
        "ImportLedger",
    ),
)


async def import_session(settings: Settings, source: str) -> str:
    """Import a file, or standard input for `-`; the session's id.

    Nothing is written unless the file is whole and everything in it holds. Repeating an import that
    was cut off goes on with it. Raises ValueError with a line's number, Failure, OSError.
    """
    with _opened(source) as file:
        with waiting("Reading the export …"):
            found = exported.read(file)
        await _check_absent(settings, found.thread.session_id)
        with waiting("Checking the export …"):
            lines = Lines(file, found)
            await check(lines, found)
        async with channel(settings, "registry", service_key(settings)) as registry:
            await registry_pb2_grpc.RegistryServiceStub(registry.as_channel()).AdoptWorkspace(
                registry_pb2.AdoptWorkspaceRequest(workspace_id=found.thread.workspace_id)
            )
        for target in _TARGETS:
            with waiting(f"Importing: {target.service} …"):
                await _send(settings, target, lines, found)
    return found.thread.session_id


def _opened(source: str) -> BinaryIO:
    """A file that can be read twice."""
    if source != "-":
        return Path(source).open("rb")
    with ExitStack() as stack:
        spool: Any = stack.enter_context(tempfile.TemporaryFile())
        shutil.copyfileobj(sys.stdin.buffer, spool)
        spool.seek(0)
        stack.pop_all()
        return spool


async def _check_absent(settings: Settings, session_id: str) -> None:
    async with channel(settings, "ledger", service_key(settings)) as ledger:
        stub = turn_pb2_grpc.TurnServiceStub(ledger.as_channel())
        try:
            await stub.LocateThread(turn_pb2.LocateThreadRequest(session_id=session_id))
        except Failure as failure:
            if failure.reason == reasons.ERROR_REASON_NOT_FOUND:
                return
            raise
    raise ValueError(f"session {session_id} is here already: an import never changes a session")


async def _send(settings: Settings, target: _Target, lines: Lines, found: Exported) -> None:
    numbers: list[int] = []

    async def bodies() -> AsyncIterator[bytes]:
        for one in lines.of(target.service):
            numbers.append(one.number)
            yield one.body

    async def requests() -> AsyncIterator[Any]:
        yield target.request(thread=found.thread, cut=found.cut)
        async for chunk in chunks(target.service, bodies()):
            yield target.request(lines=chunk)

    async with channel(settings, target.service, service_key(settings)) as remote:
        call = getattr(target.stub(remote.as_channel()), target.method)
        try:
            async for _ in call(requests()):
                pass
        except Failure as failure:
            at = int(failure.metadata.get("line", 0))
            if not 1 <= at <= len(numbers):
                raise
            raise bad_line(numbers[at - 1], failure) from None
