"""Executions against the real journal."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, cast

import pytest
from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.journal.v1 import journal_pb2_grpc
from counterfoil.tools.v1 import tools_pb2, tools_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import runtime_pb2
from counterfoil.types.v1.reference_pb2 import Attempt, Fence, ThreadRef

from foundation import failpoints
from foundation.errors import Failure
from foundation.rpc.admission import Admission, Principal
from foundation.rpc.host import Host
from foundation.storage import Database, SealRing, Unavailable
from services.journal.service import Journal
from services.tools.platform import PlatformTool, PlatformTools, ToolCall, text_outcome
from services.tools.profiles import PROFILES
from services.tools.service import ToolServicer
from tests.services.journal.bench import projecting
from tests.support.postgres import SessionPostgres

THREAD = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_1", thread_id="sthr_1")
SCOPE = pb.RoundScope(turn_id="turn_1", round=0, attempt=Attempt(epoch=1, number=1))


@dataclass
class Bench:
    journal: journal_pb2_grpc.JournalServiceStub
    tools: tools_pb2_grpc.ToolServiceStub
    entered: asyncio.Event
    finish: asyncio.Event
    runs: list[str]

    def execute(self, epoch: int = 1) -> "asyncio.Task[tools_pb2.ExecuteResponse]":
        request = tools_pb2.ExecuteRequest(
            fence=Fence(thread=THREAD, epoch=epoch),
            operation_id="op_1",
            tool_name="charge",
            tool_version="1",
            input=b"{}",
        )

        async def call() -> tools_pb2.ExecuteResponse:
            return await self.tools.Execute(request)

        return asyncio.create_task(call())

    async def operation(self) -> pb.Operation:
        request = pb.GetOperationsRequest(thread=THREAD, operation_ids=["op_1"])
        return (await self.journal.GetOperations(request)).operations[0]


async def nobody(key: str) -> Principal | None:
    return None


@pytest.fixture
async def bench(postgres: SessionPostgres) -> AsyncGenerator[Bench]:
    async with postgres.database("journal") as dsn:
        db = await Database.open(dsn, service="journal", pool_size=4)
        host = Host(Admission("service", nobody))
        host.register(
            journal_pb2_grpc.add_JournalServiceServicer_to_server,
            Journal(db, SealRing("a", {"a": bytes(32)}), projecting()),
        )
        journal = journal_pb2_grpc.JournalServiceStub(host.channel("service"))
        entered, finish = asyncio.Event(), asyncio.Event()
        runs: list[str] = []

        async def run(call: ToolCall) -> pb.Outcome:
            runs.append(call.operation_id)
            entered.set()
            await finish.wait()
            return text_outcome("charged")

        tools = PlatformTools()
        tools.register(PlatformTool("charge", "d", b'{"type":"object"}', run))
        servicer = ToolServicer(tools, PROFILES["offline"], journal, cast(Any, None))
        host.register(tools_pb2_grpc.add_ToolServiceServicer_to_server, servicer)
        await journal.PrepareOperations(
            pb.PrepareOperationsRequest(
                fence=Fence(thread=THREAD, epoch=1),
                scope=SCOPE,
                operations=[
                    pb.NewOperation(
                        id="op_1",
                        owner=runtime_pb2.TOOL_OWNER_PLATFORM_MANAGED,
                        tool_name="charge",
                        tool_version="1",
                        input=b"{}",
                    )
                ],
            )
        )
        stub = tools_pb2_grpc.ToolServiceStub(host.channel("service"))
        yield Bench(journal, stub, entered, finish, runs)
        await servicer.stop()
        await db.close()


async def test_an_executed_call_is_completed_with_its_projection(bench: Bench) -> None:
    bench.finish.set()
    await bench.execute()
    operation = await bench.operation()
    assert operation.state == pb.OPERATION_STATE_COMPLETED
    assert b'"text":"charged"' in operation.projection.body
    with pytest.raises(Failure) as failure:
        await bench.execute()
    assert failure.value.reason == reasons.ERROR_REASON_OPERATION_REFUSED
    assert bench.runs == ["op_1"]


async def test_a_fenced_caller_starts_nothing(bench: Bench) -> None:
    fence = Fence(thread=THREAD, epoch=2)
    await bench.journal.Fence(pb.FenceRequest(fence=fence, turn_id="turn_1"))
    with pytest.raises(Failure) as failure:
        await bench.execute(epoch=1)
    assert failure.value.reason == reasons.ERROR_REASON_FENCED
    assert bench.runs == []


async def test_an_outcome_after_the_call_was_closed_is_kept_as_late(bench: Bench) -> None:
    call = bench.execute()
    await bench.entered.wait()
    await bench.journal.CloseOperations(
        pb.CloseOperationsRequest(
            fence=Fence(thread=THREAD, epoch=2),
            scope=SCOPE,
            operation_ids=["op_1"],
            kind=pb.OPERATION_KIND_TOOL_CALL,
        )
    )
    assert (await bench.operation()).state == pb.OPERATION_STATE_AMBIGUOUS
    bench.finish.set()
    await call
    operation = await bench.operation()
    assert operation.state == pb.OPERATION_STATE_AMBIGUOUS
    assert operation.has_late_outcome


async def test_lost_answers_of_every_commit_run_the_tool_once(bench: Bench) -> None:
    seen: set[str] = set()

    async def lose_the_first(name: str) -> None:
        if name.endswith(".after") and name not in seen:
            seen.add(name)
            raise Unavailable("the answer is lost")

    failpoints.install(lose_the_first)
    bench.finish.set()
    await bench.execute()
    assert seen == {"journal.start.after", "journal.complete.after"}
    assert bench.runs == ["op_1"]
    assert (await bench.operation()).state == pb.OPERATION_STATE_COMPLETED
