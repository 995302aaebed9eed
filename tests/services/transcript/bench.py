"""What the transcript's tests do again and again."""

from dataclasses import dataclass
from typing import Any, cast

import asyncpg
from counterfoil.transcript.v1 import transcript_pb2 as pb
from counterfoil.types.v1.mapping_pb2 import ToolCallMapping
from counterfoil.types.v1.reference_pb2 import Attempt, Fence, Head, ThreadRef

from foundation.storage import Database
from services.transcript.service import Transcript

CONTEXT = cast("Any", None)
THREAD = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_1", thread_id="sthr_1")
FOREIGN = ThreadRef(workspace_id="wrkspc_2", session_id="sesn_1", thread_id="sthr_1")
EMPTY = Head()

INPUT = pb.TRANSCRIPT_ENTRY_KIND_INPUT
ANSWER = pb.TRANSCRIPT_ENTRY_KIND_ANSWER


def answer(entry_id: str, *uses: str) -> pb.EntryContent:
    """An answer with one tool use for each provider id."""
    return pb.EntryContent(
        blocks=[b'{"type":"tool_use","id":"%s", "n":1.10}' % use.encode() for use in uses],
        envelope=b'{"stop_reason":"tool_use"}',
        mappings=[
            ToolCallMapping(
                block_index=index,
                provider_tool_use_id=use,
                operation_id=f"op_{entry_id}_{index}",
                event_id=f"sevt_{entry_id}_{index}",
            )
            for index, use in enumerate(uses)
        ],
    )


@dataclass
class Bench:
    dsn: str
    db: Database
    service: Transcript

    async def append(
        self,
        entry_id: str,
        head: Head,
        *,
        epoch: int = 1,
        content: pb.EntryContent | None = None,
        thread: ThreadRef = THREAD,
        turn_id: str = "turn_1",
        kind: "pb.TranscriptEntryKind.ValueType | None" = None,
    ) -> pb.AppendEntryResponse:
        is_answer = content is not None and bool(content.envelope)
        request = pb.AppendEntryRequest(
            fence=Fence(thread=thread, epoch=epoch),
            expected_head=head,
            entry_id=entry_id,
            kind=kind or (ANSWER if is_answer else INPUT),
            turn_id=turn_id,
            round=0,
            content=content or pb.EntryContent(blocks=[b'{"type":"text","text":"hi"}']),
        )
        if is_answer:
            request.attempt.CopyFrom(Attempt(epoch=epoch, number=1))
        return await self.service.AppendEntry(request, CONTEXT)

    async def fill(self, count: int = 3) -> Head:
        """Entries tent_1 … tent_<count>: an input, then answers with one tool use each."""
        head = EMPTY
        for number in range(1, count + 1):
            name = f"tent_{number}"
            content = None if number == 1 else answer(name, f"toolu_{number}")
            if content is None:
                point = pb.LogPoint(position=7, digest=b"d" * 32)
                content = pb.EntryContent(blocks=[b"{}"], log_point=point)
            head = (await self.append(name, head, content=content)).head
        return head

    async def fence(self, epoch: int, turn_id: str = "turn_1") -> pb.FenceResponse:
        request = pb.FenceRequest(fence=Fence(thread=THREAD, epoch=epoch), turn_id=turn_id)
        return await self.service.Fence(request, CONTEXT)

    async def list(
        self, after: int = 0, through: int = 0, thread: ThreadRef = THREAD
    ) -> pb.ListEntriesResponse:
        request = pb.ListEntriesRequest(thread=thread, seq_after=after, seq_through=through)
        return await self.service.ListEntries(request, CONTEXT)

    async def verify(self, thread: ThreadRef = THREAD) -> pb.VerifyTranscriptResponse:
        request = pb.VerifyTranscriptRequest(thread=thread)
        return await self.service.VerifyTranscript(request, CONTEXT)

    async def tombstone(self) -> None:
        await self.service.Tombstone(pb.TombstoneRequest(thread=THREAD), CONTEXT)

    async def tamper(self, *statements: str) -> None:
        """Run SQL as somebody who may switch triggers off."""
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute("SET session_replication_role = replica")
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    async def sql(self, statement: str) -> Any:
        """Run one ordinary statement; returns the first value."""
        connection = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()
