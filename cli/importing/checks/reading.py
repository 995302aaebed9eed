"""The authorities that history is read from, played by the lines of an export."""

from collections.abc import Callable
from typing import Any

from counterfoil.files.v1 import artifacts_pb2
from counterfoil.journal.v1 import journal_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1.reference_pb2 import Head

from cli.importing.checks import journal, transcript
from cli.importing.checks.journal import Journal
from cli.importing.checks.transcript import Transcript
from cli.importing.lines import Lines
from foundation.errors import not_found
from foundation.exports import Line
from services.context.history import History
from services.files.export_parts import artifact_row

Artifact = Callable[[], Line]
"""Reads the line of an artifact."""


def history(
    lines: Lines, entries: Transcript, outcomes: Journal, artifacts: dict[str, Artifact]
) -> History:
    """Reads what the lines tell of a thread."""
    readers: tuple[Any, ...] = (
        _Entries(lines, entries),
        _Outcomes(lines, outcomes),
        _Artifacts(artifacts),
        _NoPrefixes(),
    )
    return History(*readers)


class _Entries:
    def __init__(self, lines: Lines, found: Transcript) -> None:
        self._lines = lines
        self._found = found

    async def ListEntries(
        self, request: transcript_pb2.ListEntriesRequest
    ) -> transcript_pb2.ListEntriesResponse:
        """As the transcript's; the export's head is the newest."""
        after, head = request.seq_after, self._found.verified.head
        through = request.seq_through or head.seq
        listed = transcript.entries(self._lines, self._found, after, through)
        response = transcript_pb2.ListEntriesResponse(entries=listed, head=head)
        digest = self._found.digest(after)
        if after and digest is not None:
            response.before.CopyFrom(Head(seq=after, digest=digest))
        return response


class _Outcomes:
    def __init__(self, lines: Lines, found: Journal) -> None:
        self._lines = lines
        self._found = found

    async def GetOperations(
        self, request: journal_pb2.GetOperationsRequest
    ) -> journal_pb2.GetOperationsResponse:
        """As the journal's, of operations with an outcome."""
        found = [journal.operation(self._lines, self._found, id) for id in request.operation_ids]
        return journal_pb2.GetOperationsResponse(operations=[one for one in found if one])


class _Artifacts:
    def __init__(self, artifacts: dict[str, Artifact]) -> None:
        self._artifacts = artifacts

    async def ReadArtifact(
        self, request: artifacts_pb2.ReadArtifactRequest
    ) -> artifacts_pb2.ReadArtifactResponse:
        """As the files authority's. Raises NOT_FOUND."""
        read = self._artifacts.get(request.artifact_id)
        if read is None:
            raise not_found("artifact", request.artifact_id)
        return artifacts_pb2.ReadArtifactResponse(body=artifact_row(read())["body"])


class _NoPrefixes:
    async def find(self, thread: object, seq_max: int, losses: object) -> None:
        """Nothing is kept."""
