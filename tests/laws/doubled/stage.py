"""The services of one process, with what a schedule needs to reach into."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self, cast

import asyncpg
import grpc
from counterfoil.files.v1 import artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc
from counterfoil.ledger.v1 import session_pb2_grpc, turn_pb2_grpc
from counterfoil.registry.v1 import (
    agent_pb2,
    agent_pb2_grpc,
    environment_pb2,
    environment_pb2_grpc,
    registry_pb2_grpc,
)
from counterfoil.tools.v1 import tools_pb2_grpc
from counterfoil.types.v1 import runtime_pb2
from pydantic import SecretStr

from foundation.bootstrap import Kernel
from foundation.settings import Settings
from foundation.storage import Connection, Database, Record, SealRing
from services.context import service as context_service
from services.journal import service as journal_service
from services.ledger import session_store
from services.ledger.attach import Attachments
from services.ledger.definitions import Definitions
from services.ledger.dispatcher import Dispatcher
from services.ledger.forks import Forks
from services.ledger.inspection import Inspection
from services.ledger.lanes import Lanes
from services.ledger.log_list import History
from services.ledger.redacting import EventRedactor
from services.ledger.service import SessionServicer, TurnServicer
from services.ledger.session_pages import SessionPages
from services.ledger.sessions import Sessions
from services.ledger.stream import Hub
from services.ledger.verify import Verifier
from services.registry import service as registry_service
from services.tools.platform import PlatformTool, PlatformTools, ToolCall, text_outcome
from services.tools.profiles import choose
from services.tools.service import ToolServicer
from services.transcript import service as transcript_service
from tests.laws.doubled import turn_ends
from tests.laws.doubled.clock import IdleLoop
from tests.laws.doubled.network import CURRENT, Net, Wire
from tests.laws.doubled.provider import ASK, CUSTOM, PLATFORM

API_KEY = "a-workspace-key-of-the-test"
SERVICE_KEY = "the-service-credential-of-the-test"
DEADLINE_MS = 60_000
_LEASE_MS = 3_600_000
"""Leases end when the schedule says so."""
_SCHEMA = b'{"type":"object","properties":{"text":{"type":"string"}}}'


class Activity:
    """How many answers of the database are awaited."""

    def __init__(self) -> None:
        self.awaited = 0

    def __enter__(self) -> None:
        self.awaited += 1

    def __exit__(self, *_: object) -> None:
        self.awaited -= 1


class WatchedDatabase(Database):
    """A database that says when something is under way."""

    activity: Activity

    @asynccontextmanager
    async def commit(self, failpoint: str) -> AsyncGenerator[Connection]:
        with self.activity:
            async with super().commit(failpoint) as connection:
                yield connection

    async def commit_one(
        self, failpoint: str | Sequence[str], sql: str, *args: object
    ) -> list[Record]:
        with self.activity:
            return await super().commit_one(failpoint, sql, *args)

    async def commit_grouped(
        self, failpoint: str | Sequence[str], sql: str, *args: object, weight: int = 0
    ) -> list[Record]:
        with self.activity:
            return await super().commit_grouped(failpoint, sql, *args, weight=weight)

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[Connection]:
        with self.activity:
            async with super().read() as connection:
                yield connection

    async def fetch(self, sql: str, *args: object) -> list[Record]:
        with self.activity:
            return await super().fetch(sql, *args)

    async def fetchrow(self, sql: str, *args: object) -> Record | None:
        with self.activity:
            return await super().fetchrow(sql, *args)

    def notify_soon(self, channel: str, payload: str) -> None:
        """There is no other ledger process that could hear it."""


class StageKernel(Kernel):
    """A kernel whose databases are watched."""

    def __init__(self, dsn: str, activity: Activity) -> None:
        settings = Settings.model_validate({"api_key": SecretStr(API_KEY)})
        super().__init__(settings, SealRing("k", {"k": b"k" * 32}), SERVICE_KEY)
        self.dsn = dsn
        self.opened: dict[str, WatchedDatabase] = {}
        self._activity = activity

    async def database(self, service: str) -> WatchedDatabase:
        if service not in self.opened:
            db = await WatchedDatabase.open(self.dsn, service=service, pool_size=4)
            db.activity = self._activity
            self.opened[service] = db
        return self.opened[service]

    async def close(self) -> None:
        await self.stop()
        for database in self.opened.values():
            await database.close()


class Stage:
    """Services without runners. `net` is that of the schedule that plays now."""

    def __init__(self, kernel: StageKernel, loop: IdleLoop, activity: Activity) -> None:
        self._activity = activity
        self.kernel = kernel
        self.loop = loop
        self.net = Net()
        self.executions: dict[str, int] = {}
        self.inner: Any = kernel.host.channel(SERVICE_KEY)
        public: Any = kernel.host.channel("")
        self.sessions = session_pb2_grpc.SessionServiceStub(public)
        self.agents = agent_pb2_grpc.AgentServiceStub(public)
        self.environments = environment_pb2_grpc.EnvironmentServiceStub(public)
        self.turns = turn_pb2_grpc.TurnServiceStub(self.inner)
        self.agent_id = self.environment_id = ""
        self.clerk: Connection
        """Moves stored times as the schedule says; triggers that forbid it are off."""
        self.dispatcher: Dispatcher
        self.tools: ToolServicer

    @classmethod
    async def open(cls, dsn: str) -> Self:
        """Start the services on a migrated database."""
        loop = cast(IdleLoop, asyncio.get_running_loop())
        activity = Activity()
        loop.is_busy = lambda: activity.awaited > 0
        stage = cls(StageKernel(dsn, activity), loop, activity)
        stage.clerk = await asyncpg.connect(dsn)
        await turn_ends.watch(stage.clerk)
        await stage.clerk.execute("SET session_replication_role = replica")
        kernel = stage.kernel
        for service in (registry_service, transcript_service, journal_service, context_service):
            await service.start(kernel)
        stage._start_tools()
        await stage._start_ledger()
        await stage._define()
        return stage

    async def change(self, sql: str, *args: object) -> bool:
        """Run a statement of the schedule; whether it returned a row."""
        with self._activity:
            return bool(await self.clerk.fetch(sql, *args))

    async def close(self) -> None:
        await self.clerk.close()
        await self.dispatcher.close()
        await self.tools.stop()
        await self.kernel.close()

    async def _start_ledger(self) -> None:
        kernel = self.kernel
        db, ring = await kernel.database("ledger"), kernel.ring
        hub = Hub(db, ring, session_store.probe)
        lanes = Lanes(db, ring, hub, lease_ms=_LEASE_MS)
        self.dispatcher = Dispatcher(db, lanes)
        sessions = Sessions(
            lanes,
            self.dispatcher,
            Definitions(
                registry_pb2_grpc.RegistryServiceStub(kernel.channel("registry")),
                tools_pb2_grpc.ToolServiceStub(kernel.channel("tools")),
            ),
        )
        history = History(db, ring, session_store.probe)
        verifier = Verifier(db, ring, session_store.probe)
        inspection = Inspection(db, session_store.probe, verifier)
        public = SessionServicer(
            sessions,
            Forks(lanes, self.dispatcher),
            SessionPages(db, ring),
            history,
            hub,
            inspection,
        )
        kernel.register(session_pb2_grpc.add_SessionServiceServicer_to_server, public)
        attachments = Attachments(lanes, self.dispatcher)
        redactor = EventRedactor(db, ring)
        internal = TurnServicer(lanes, sessions, attachments, hub, verifier, redactor)
        kernel.register(turn_pb2_grpc.add_TurnServiceServicer_to_server, internal)

    def _start_tools(self) -> None:
        registry = PlatformTools()
        registry.register(self._tool(PLATFORM, runtime_pb2.TOOL_POLICY_ALWAYS_ALLOW))
        registry.register(self._tool(ASK, runtime_pb2.TOOL_POLICY_ALWAYS_ASK))
        wire = cast(grpc.aio.Channel, ToolsWire(self.inner, lambda: self.net))
        journal = journal_pb2_grpc.JournalServiceStub(wire)
        files = artifacts_pb2_grpc.ArtifactServiceStub(wire)
        self.tools = ToolServicer(registry, choose("", ""), journal, files)
        self.kernel.register(tools_pb2_grpc.add_ToolServiceServicer_to_server, self.tools)

    def _tool(self, name: str, policy: "runtime_pb2.ToolPolicy.ValueType") -> PlatformTool:
        async def run(call: ToolCall) -> journal_pb2.Outcome:
            net = self.net
            net.log("EXECUTE", name, call.operation_id[-6:])
            self.executions[call.operation_id] = self.executions.get(call.operation_id, 0) + 1
            CURRENT.set("tools")
            await net.send(f"effect {name}", _nothing)
            return text_outcome(f"{name} ran {call.input.decode()}")

        return PlatformTool(
            name=name,
            description=f"The {name}.",
            input_schema=_SCHEMA,
            run=run,
            policy=policy,
            deadline_ms=DEADLINE_MS,
        )

    async def _define(self) -> None:
        custom = agent_pb2.CustomTool(name=CUSTOM, description="The desk.", input_schema=_SCHEMA)
        agent = agent_pb2.CreateAgentRequest(
            name="clerk",
            model=agent_pb2.ModelConfig(id="model-1"),
            system="Be brief.",
            tools=[agent_pb2.Tool(custom=custom)],
        )
        metadata = (("x-api-key", API_KEY),)
        created = await self.agents.CreateAgent(agent, metadata=metadata)
        self.agent_id = created.agent.id
        environment = environment_pb2.CreateEnvironmentRequest(name="office")
        made = await self.environments.CreateEnvironment(environment, metadata=metadata)
        self.environment_id = made.environment.id


class ToolsWire(Wire):
    """The executors' channel to the journal: whoever calls, it is the tools' process."""

    def unary_unary(self, path: str, *args: object, **kwargs: object) -> Any:
        call = super().unary_unary(path, *args, **kwargs)

        async def as_tools(*args: Any, **kwargs: Any) -> Any:
            CURRENT.set("tools")
            return await call(*args, **kwargs)

        return as_tools


async def _nothing() -> None:
    return None
