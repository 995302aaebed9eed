"""The context authority over a fresh database, with the real transcript and a journal in memory."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.context.v1 import context_pb2_grpc
from counterfoil.files.v1 import artifacts_pb2, artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc
from counterfoil.transcript.v1 import transcript_pb2, transcript_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import runtime_pb2
from counterfoil.types.v1.capability_pb2 import CapabilityProfile
from counterfoil.types.v1.mapping_pb2 import ToolCallMapping
from counterfoil.types.v1.reference_pb2 import Attempt, Fence, Head, ThreadRef

from foundation.errors import Failure
from foundation.rpc.admission import Admission, Principal
from foundation.rpc.host import Host
from foundation.storage import Database, SealRing
from services.context.cache import WarmCache
from services.context.service import ContextServicer
from services.context.shrinking import Mode
from services.transcript.service import Transcript
from tests.services.context.histories import ANSWER, INPUT, RESULTS, Kind, text
from tests.support.postgres import SessionPostgres

THREAD = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_1", thread_id="sthr_1")
OTHER = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_2", thread_id="sthr_2")
PROMPT = "a system prompt that nobody may read"


class JournalInMemory:
    """Answers the one question that the context asks."""

    def __init__(self) -> None:
        self.calls: dict[str, journal_pb2.Operation] = {}
        self.projections: dict[str, journal_pb2.Projection] = {}
        self.asked: list[str] = []
        self.operations_max = 1000

    async def GetOperations(
        self, request: journal_pb2.GetOperationsRequest
    ) -> journal_pb2.GetOperationsResponse:
        self.asked += request.operation_ids
        if len(request.operation_ids) > self.operations_max:
            raise Failure(reasons.ERROR_REASON_TOO_LARGE, "the message is too large")
        return journal_pb2.GetOperationsResponse(
            operations=[
                journal_pb2.Operation(id=id, projection=self.projections[id])
                for id in request.operation_ids
                if id in self.projections
            ]
            + [self.calls[id] for id in request.operation_ids if id in self.calls]
        )


class ArtifactsInMemory:
    """Answers the one question that the context asks of files."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.is_down = False

    async def ReadArtifact(
        self, request: artifacts_pb2.ReadArtifactRequest
    ) -> artifacts_pb2.ReadArtifactResponse:
        self.asked.append(request.artifact_id)
        if self.is_down:
            raise Failure(reasons.ERROR_REASON_UNAVAILABLE, "the object store is not reachable")
        if request.artifact_id not in self.bodies:
            raise Failure(reasons.ERROR_REASON_NOT_FOUND, "no such artifact")
        return artifacts_pb2.ReadArtifactResponse(body=self.bodies[request.artifact_id])


class TranscriptAsked:
    """The transcript's stub; counts the entries that were read, and their pages."""

    def __init__(self, stub: transcript_pb2_grpc.TranscriptServiceStub) -> None:
        self._stub = stub
        self.entries_read = 0
        self.pages = 0

    async def ListEntries(
        self, request: transcript_pb2.ListEntriesRequest
    ) -> transcript_pb2.ListEntriesResponse:
        response = await self._stub.ListEntries(request)
        self.pages += 1
        self.entries_read += len(response.entries)
        return response


def runtime(**fields: Any) -> runtime_pb2.SessionRuntime:
    return runtime_pb2.SessionRuntime(
        **{
            "model": "offline",
            "system": PROMPT,
            "profile": CapabilityProfile(id="offline", version=1, adapter="messages"),
            "tools": [
                runtime_pb2.ToolBinding(
                    name="t",
                    owner=runtime_pb2.TOOL_OWNER_CLIENT_CUSTOM,
                    policy=runtime_pb2.TOOL_POLICY_ALWAYS_ALLOW,
                    input_schema=b'{"type":"object"}',
                )
            ],
            **fields,
        }
    )


@dataclass
class Bench:
    dsn: str
    db: Database
    ring: SealRing
    host: Host
    journal: JournalInMemory
    transcript: TranscriptAsked
    artifacts: ArtifactsInMemory
    service: ContextServicer
    head: Head = field(default_factory=Head)
    turns: int = 0
    """Inputs so far: each begins a turn."""

    def another(
        self, cache: WarmCache | None = None, summary_mode: Mode = "extractive"
    ) -> ContextServicer:
        """Another process of the same deployment, which knows nothing."""
        return ContextServicer(
            self.db,
            self.ring,
            cast(transcript_pb2_grpc.TranscriptServiceStub, self.transcript),
            cast(journal_pb2_grpc.JournalServiceStub, self.journal),
            cast(artifacts_pb2_grpc.ArtifactServiceStub, self.artifacts),
            cache,
            summary_mode,
        )

    async def append(self, kind: Kind, thread: ThreadRef = THREAD, **content: Any) -> None:
        head = self.head if thread == THREAD else Head()
        stub = transcript_pb2_grpc.TranscriptServiceStub(self.host.channel("service"))
        request = transcript_pb2.AppendEntryRequest(
            fence=Fence(thread=thread, epoch=1),
            expected_head=head,
            entry_id=f"tent_{head.seq + 1}",
            kind=kind,
            turn_id=f"turn_{self.turns}",
            content=transcript_pb2.EntryContent(**content),
        )
        if kind == ANSWER:
            request.attempt.CopyFrom(Attempt(epoch=1, number=1))
        response = await stub.AppendEntry(request)
        if thread == THREAD:
            self.head = response.head

    async def ask(self, *blocks: bytes) -> None:
        self.turns += 1
        await self.append(INPUT, blocks=blocks or [text("hi")])

    async def answer(self, *blocks: bytes, uses: tuple[int, ...] = ()) -> None:
        seq = self.head.seq + 1
        mappings = [
            ToolCallMapping(
                block_index=index,
                provider_tool_use_id="x",
                operation_id=f"op_{seq}_{index}",
                event_id=f"sevt_{seq}_{index}",
            )
            for index in uses
        ]
        await self.append(ANSWER, blocks=blocks, envelope=b"{}", mappings=mappings)

    async def append_answer(self, *blocks: bytes, envelope: bytes, snapshot_id: str) -> None:
        """An answer without calls to a request of ours, with its usage."""
        await self.append(ANSWER, blocks=blocks, envelope=envelope, snapshot_id=snapshot_id)

    async def results(self, **given: journal_pb2.Projection) -> None:
        """Projections by the block index of their use: `_0=…`."""
        references: list[transcript_pb2.ResultReference] = []
        for name, projection in given.items():
            id = f"op_{self.head.seq}{name}"
            self.journal.projections[id] = projection
            references.append(
                transcript_pb2.ResultReference(
                    operation_id=id,
                    block_index=int(name[1:]),
                    projection_digest=projection.digest,
                )
            )
        await self.append(RESULTS, results=references)

    def request(
        self,
        *,
        round: int = 0,
        epoch: int = 1,
        number: int = 1,
        turn_id: str = "turn_1",
        head: Head | None = None,
        thread: ThreadRef = THREAD,
        pinned: runtime_pb2.SessionRuntime | None = None,
        stream: bool = True,
        **fields: Any,
    ) -> pb.PrepareRequestRequest:
        return pb.PrepareRequestRequest(
            fence=Fence(thread=thread, epoch=epoch),
            turn_id=turn_id,
            round=round,
            attempt=Attempt(epoch=epoch, number=number),
            transcript_head=self.head if head is None else head,
            runtime=pinned or runtime(),
            stream=stream,
            **fields,
        )

    async def prepare(self, **fields: Any) -> pb.PreparedRequest:
        response = await self.service.PrepareRequest(self.request(**fields), None)
        assert response.HasField("prepared"), response
        return response.prepared

    async def rebuild(self, id: str, thread: ThreadRef = THREAD) -> bytes:
        request = pb.RebuildRequest(thread=thread, snapshot_id=id)
        return (await self.another().Rebuild(request, None)).body

    async def fence(self, epoch: int, turn_id: str = "turn_1") -> pb.FenceResponse:
        request = pb.FenceRequest(fence=Fence(thread=THREAD, epoch=epoch), turn_id=turn_id)
        return await self.service.Fence(request, None)

    async def tombstone(self, thread: ThreadRef = THREAD) -> None:
        await self.service.Tombstone(pb.TombstoneRequest(thread=thread), None)

    async def listed(self, thread: ThreadRef = THREAD) -> list[pb.SnapshotSummary]:
        request = pb.ListSnapshotsRequest(thread=thread)
        return list((await self.service.ListSnapshots(request, None)).snapshots)


async def nobody(key: str) -> Principal | None:
    return None


@pytest.fixture
async def bench(postgres: SessionPostgres) -> AsyncGenerator[Bench]:
    async with postgres.database("context", "transcript") as dsn:
        db = await Database.open(dsn, service="context", pool_size=4)
        transcripts = await Database.open(dsn, service="transcript", pool_size=2)
        try:
            ring = SealRing("a", {"a": bytes(32)})
            host = Host(Admission("service", nobody))
            host.register(
                transcript_pb2_grpc.add_TranscriptServiceServicer_to_server,
                Transcript(transcripts, ring),
            )
            journal = JournalInMemory()
            asked = TranscriptAsked(
                transcript_pb2_grpc.TranscriptServiceStub(host.channel("service"))
            )
            artifacts = ArtifactsInMemory()
            service = ContextServicer(
                db,
                ring,
                cast(transcript_pb2_grpc.TranscriptServiceStub, asked),
                cast(journal_pb2_grpc.JournalServiceStub, journal),
                cast(artifacts_pb2_grpc.ArtifactServiceStub, artifacts),
            )
            host.register(context_pb2_grpc.add_ContextServiceServicer_to_server, service)
            yield Bench(dsn, db, ring, host, journal, asked, artifacts, service)
        finally:
            await db.close()
            await transcripts.close()
