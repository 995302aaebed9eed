"""A call whose deadline passes, or whose caller leaves, ends its statement in PostgreSQL."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
from counterfoil.ledger.v1 import client_events_pb2, content_pb2, session_pb2, session_pb2_grpc
from counterfoil.registry.v1 import agent_pb2, agent_pb2_grpc, environment_pb2, environment_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons

from cli.embedded import Embedded
from foundation.errors import Failure
from foundation.rpc.remote import RemoteChannel
from foundation.settings import DEVELOPMENT_KEY
from tests.support.inside import inside
from tests.support.model import Model
from tests.support.postgres import SessionPostgres

TIMEOUT = 0.3

WAITING = """
SELECT application_name FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND state = 'active'
"""


@dataclass
class Case:
    """A running system, a channel to it, and its database from outside."""

    channel: Any
    database: "asyncpg.Connection[asyncpg.Record]"
    outside: "asyncpg.Connection[asyncpg.Record]"

    async def session(self) -> str:
        agents = agent_pb2_grpc.AgentServiceStub(self.channel)
        agent = await agents.CreateAgent(
            agent_pb2.CreateAgentRequest(
                name="slow", model=agent_pb2.ModelConfig(id="claude-sonnet-4-5")
            )
        )
        environments = environment_pb2_grpc.EnvironmentServiceStub(self.channel)
        environment = await environments.CreateEnvironment(
            environment_pb2.CreateEnvironmentRequest(name="slow")
        )
        sessions = session_pb2_grpc.SessionServiceStub(self.channel)
        pinned = session_pb2.AgentVersionReference(id=agent.agent.id)
        made = await sessions.CreateSession(
            session_pb2.CreateSessionRequest(
                agent=session_pb2.AgentReference(agent=pinned),
                environment_id=environment.environment.id,
            )
        )
        return made.session.id

    async def waiting(self, number: int) -> list[str]:
        """The applications that wait for a lock, once there are so many."""
        async with asyncio.timeout(10):
            while True:
                found = [row[0] for row in await self.outside.fetch(WAITING)]
                if len(found) == number:
                    return found
                await asyncio.sleep(0.01)


@pytest.fixture(params=["in process", "socket"])
async def case(
    request: pytest.FixtureRequest, postgres: SessionPostgres, model: Model
) -> AsyncGenerator[Case]:
    async with (
        inside(postgres, model.url) as (embedded, dsn),
        _channel(request.param, embedded) as channel,
    ):
        database, outside = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
        try:
            yield Case(channel, database, outside)
        finally:
            await database.close()
            await outside.close()


@asynccontextmanager
async def _channel(kind: str, embedded: Embedded) -> AsyncGenerator[Any]:
    if kind == "in process":
        yield embedded.kernel.channel("ledger", credential=DEVELOPMENT_KEY)
        return
    remote = RemoteChannel(embedded.grpc_address, DEVELOPMENT_KEY)
    yield remote.as_channel()
    await remote.close()


@asynccontextmanager
async def locked(case: Case, sql: str, *args: object) -> AsyncGenerator[None]:
    """Somebody else holds a lock."""
    transaction = case.database.transaction()
    await transaction.start()
    await case.database.execute(sql, *args)
    try:
        yield
    finally:
        await transaction.rollback()


def message(session_id: str) -> session_pb2.SubmitEventsRequest:
    block = content_pb2.ContentBlock(text=content_pb2.TextBlock(text="hello"))
    event = client_events_pb2.ClientEvent(
        user_message=client_events_pb2.UserMessage(content=[block])
    )
    return session_pb2.SubmitEventsRequest(session_id=session_id, events=[event])


async def expires(call: Callable[..., Awaitable[Any]], request: object) -> None:
    started = time.monotonic()
    with pytest.raises(Failure) as caught:
        await call(request, timeout=TIMEOUT)
    assert caught.value.reason == reasons.ERROR_REASON_DEADLINE_EXCEEDED
    assert time.monotonic() - started < 10 * TIMEOUT


async def test_a_commit_is_cut_off_and_changes_nothing(case: Case) -> None:
    session_id = await case.session()
    sessions = session_pb2_grpc.SessionServiceStub(case.channel)
    lock = "SELECT 1 FROM ledger.sessions WHERE session_id = $1 FOR UPDATE"
    async with locked(case, lock, session_id):
        running = asyncio.create_task(expires(sessions.SubmitEvents, message(session_id)))
        assert await case.waiting(1) == ["counterfoil-ledger"]
        await running
        await case.waiting(0)  # while the lock is still held: the statement itself has ended
    listed = await sessions.ListEvents(session_pb2.ListEventsRequest(session_id=session_id))
    assert not listed.data
    await sessions.SubmitEvents(message(session_id), timeout=10)


async def test_a_single_statement_is_cut_off(case: Case) -> None:
    agents = agent_pb2_grpc.AgentServiceStub(case.channel)
    request = agent_pb2.CreateAgentRequest(
        name="slow", model=agent_pb2.ModelConfig(id="claude-sonnet-4-5")
    )
    async with locked(case, "LOCK TABLE registry.agents IN ACCESS EXCLUSIVE MODE"):
        running = asyncio.create_task(expires(agents.CreateAgent, request))
        assert await case.waiting(1) == ["counterfoil-registry"]
        await running
        await case.waiting(0)
    assert (await agents.CreateAgent(request, timeout=10)).agent.id


async def test_a_read_is_cut_off(case: Case) -> None:
    session_id = await case.session()
    sessions = session_pb2_grpc.SessionServiceStub(case.channel)
    request = session_pb2.GetSessionRequest(session_id=session_id)
    async with locked(case, "LOCK TABLE ledger.sessions IN ACCESS EXCLUSIVE MODE"):
        running = asyncio.create_task(expires(sessions.GetSession, request))
        assert "counterfoil-ledger" in await case.waiting(1)
        await running
        await case.waiting(0)
    assert (await sessions.GetSession(request, timeout=10)).session.id == session_id


async def test_a_caller_that_leaves_stops_its_statement(case: Case) -> None:
    session_id = await case.session()
    sessions = session_pb2_grpc.SessionServiceStub(case.channel)
    lock = "SELECT 1 FROM ledger.sessions WHERE session_id = $1 FOR UPDATE"
    async with locked(case, lock, session_id):
        running = asyncio.ensure_future(sessions.SubmitEvents(message(session_id)))
        await case.waiting(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await case.waiting(0)
