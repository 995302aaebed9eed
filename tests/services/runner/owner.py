"""What a turn's owner talks to, in one process: a real journal, and others that a test decides."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from counterfoil.context.v1 import context_pb2
from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.tools.v1 import tools_pb2
from counterfoil.types.v1 import reference_pb2, runtime_pb2

from foundation.rpc.admission import Admission, Principal
from foundation.rpc.host import Host
from foundation.storage import Database, SealRing
from services.journal.service import Journal
from services.runner.authorities import Authorities
from services.runner.turn import Turn
from tests.services.journal.bench import projecting
from tests.support.postgres import SessionPostgres

THREAD = reference_pb2.ThreadRef(workspace_id="wrkspc_1", session_id="sesn_1", thread_id="sthr_1")
ATTEMPT = reference_pb2.Attempt(epoch=1, number=1)
SCOPE = journal_pb2.RoundScope(turn_id="turn_1", round=0, attempt=ATTEMPT)
CALL = turn_pb2.RoundCall(
    operation_id="op_1",
    use_event_id="sevt_1",
    name="charge",
    owner=runtime_pb2.TOOL_OWNER_PLATFORM_MANAGED,
    policy=runtime_pb2.TOOL_POLICY_ALWAYS_ALLOW,
)


@dataclass
class Tools:
    """Answers Execute as the test says."""

    on_execute: Callable[[], object] = lambda: None
    seconds_given: list[float] = field(default_factory=list[float])

    async def Execute(
        self, request: tools_pb2.ExecuteRequest, **options: float
    ) -> tools_pb2.ExecuteResponse:
        self.seconds_given.append(options["timeout"])
        self.on_execute()
        return tools_pb2.ExecuteResponse()


@dataclass
class Turns:
    """Takes every attempt."""

    on_begin: Callable[[], object] = lambda: None
    begun: list[reference_pb2.Attempt] = field(default_factory=list[reference_pb2.Attempt])

    async def BeginRound(
        self, request: turn_pb2.BeginRoundRequest, **options: float
    ) -> turn_pb2.BeginRoundResponse:
        self.begun.append(request.attempt)
        self.on_begin()
        return turn_pb2.BeginRoundResponse()


class Contexts:
    """Builds the same request every time."""

    async def PrepareRequest(
        self, request: context_pb2.PrepareRequestRequest, **options: float
    ) -> context_pb2.PrepareRequestResponse:
        snapshot = context_pb2.SnapshotSummary(
            id=f"snap_{request.attempt.number}", request_digest=bytes(32)
        )
        prepared = context_pb2.PreparedRequest(snapshot=snapshot, body=b"{}")
        return context_pb2.PrepareRequestResponse(prepared=prepared)


@dataclass
class Surroundings:
    """The authorities, and a claimed turn without a stored input."""

    authorities: Authorities
    turn: Turn
    tools: Tools
    turns: Turns

    async def prepare(self) -> None:
        """Records CALL in the journal."""
        operation = journal_pb2.NewOperation(
            id=CALL.operation_id, owner=CALL.owner, tool_name=CALL.name, tool_version="1"
        )
        await self.authorities.journal.PrepareOperations(
            journal_pb2.PrepareOperationsRequest(
                fence=self.turn.fence, scope=SCOPE, operations=[operation]
            )
        )

    async def operations(self) -> list[journal_pb2.Operation]:
        """All operations of the turn."""
        request = journal_pb2.FenceRequest(fence=self.turn.fence, turn_id=self.turn.id)
        return list((await self.authorities.journal.Fence(request)).operations)


async def nobody(key: str) -> Principal | None:
    return None


@asynccontextmanager
async def surroundings(postgres: SessionPostgres) -> AsyncGenerator[Surroundings]:
    async with postgres.database("journal") as dsn:
        db = await Database.open(dsn, service="journal", pool_size=4)
        host, tools, turns = Host(Admission("service", nobody)), Tools(), Turns()
        host.register(
            journal_pb2_grpc.add_JournalServiceServicer_to_server,
            Journal(db, SealRing("a", {"a": bytes(32)}), projecting()),
        )
        authorities = Authorities(
            turns=cast(Any, turns),
            transcript=cast(Any, None),
            journal=journal_pb2_grpc.JournalServiceStub(host.channel("service")),
            context=cast(Any, Contexts()),
            artifacts=cast(Any, None),
            tools=cast(Any, tools),
        )
        binding = runtime_pb2.ToolBinding(
            name=CALL.name, owner=CALL.owner, policy=CALL.policy, version="1", deadline_ms=2_000
        )
        runtime = runtime_pb2.SessionRuntime(model="m", tools=[binding])
        claim = turn_pb2.Claim(thread=THREAD, epoch=1, turn_id="turn_1", round=-1, runtime=runtime)
        attached = asyncio.Event()
        attached.set()
        yield Surroundings(authorities, Turn.of(claim, attached), tools, turns)
        await db.close()
