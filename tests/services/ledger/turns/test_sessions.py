"""Sessions: what creation pins, and how deletion leaves nothing but a tombstone."""

import asyncio
from itertools import combinations
from typing import Any

import asyncpg
import pytest
from counterfoil.ledger.v1 import session_pb2, turn_pb2

from foundation.errors import Failure
from foundation.rpc.context import CallContext, serving
from foundation.storage.testing import assert_schema_matches, assert_sql_prepares
from services.ledger import (
    lane_store,
    lane_write_store,
    lease_store,
    log_schema,
    schema,
    session_store,
    tables,
)
from tests.services.ledger.turns.driver import WORKSPACE, Ledger, reason_of
from tests.services.ledger.turns.events import ALLOW, CUSTOM, custom_result, interrupt, message
from tests.services.ledger.turns.neighbours import AGENT, ENVIRONMENT

PARK = turn_pb2.COMMIT_KIND_PARKED


def _request(**changes: Any) -> session_pb2.CreateSessionRequest:
    reference = session_pb2.AgentVersionReference(id=changes.pop("agent", AGENT))
    environment = changes.pop("environment", ENVIRONMENT)
    return session_pb2.CreateSessionRequest(
        agent=session_pb2.AgentReference(agent=reference), environment_id=environment, **changes
    )


async def _create(ledger: Ledger, request: session_pb2.CreateSessionRequest) -> None:
    with serving(CallContext("req", WORKSPACE)):
        await ledger.sessions.CreateSession(request, None)


async def test_a_new_session_waits_unless_it_came_with_messages(ledger: Ledger) -> None:
    idle = await ledger.create()
    assert idle.status == session_pb2.SESSION_STATUS_IDLE
    assert (idle.agent.id, idle.agent.version) == (AGENT, 2)
    assert await ledger.types() == []
    running = await ledger.create("one", "two")
    assert running.status == session_pb2.SESSION_STATUS_RUNNING
    assert (await ledger.types())[:2] == ["user.message?", "user.message?"]


async def test_unknown_definitions_are_the_requests_fault(ledger: Ledger) -> None:
    with pytest.raises(Failure) as caught:
        await _create(ledger, _request(agent="agent_unknown"))
    assert caught.value.path == "agent"
    refused = _request(initial_events=[interrupt()])
    assert await reason_of(_create(ledger, refused)) == "INVALID_FIELD"
    assert await ledger.db.fetchval("SELECT count(*) FROM ledger.sessions") == 0


async def test_ids_that_nobody_issued(ledger: Ledger) -> None:
    ledger.thread.session_id = "sesn_\0"
    assert await reason_of(ledger.get()) == "NOT_FOUND"
    assert await reason_of(ledger.send(message("x"))) == "NOT_FOUND"


async def test_the_primary_thread_is_listed(ledger: Ledger) -> None:
    await ledger.create()
    request = session_pb2.ListThreadsRequest(session_id=ledger.thread.session_id)
    with serving(CallContext("req", WORKSPACE)):
        [thread] = (await ledger.sessions.ListThreads(request, None)).data
    assert (thread.id, thread.status) == (ledger.thread.thread_id, session_pb2.SESSION_STATUS_IDLE)


async def test_a_running_session_is_not_deleted(ledger: Ledger) -> None:
    await ledger.create("go")
    assert await reason_of(ledger.delete()) == "WRONG_STATE"


async def test_deletion_fences_tells_and_erases(ledger: Ledger) -> None:
    await ledger.create("secret")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((CUSTOM, ALLOW), commit=PARK)
        request = session_pb2.StreamEventsRequest(session_id=ledger.thread.session_id)
        with serving(CallContext("req", WORKSPACE)):
            stream = ledger.sessions.StreamEvents(request, None)
        await anext(stream)
        await ledger.delete()
        async with asyncio.timeout(10):
            last = [response async for response in stream][-1]
        assert (last.end, last.frames[-1].type) == (True, "session.deleted")

        assert await reason_of(ledger.get()) == "NOT_FOUND"
        assert await reason_of(ledger.send(custom_result(turn.calls[0]))) == "NOT_FOUND"
        assert await reason_of(ledger.delete()) == "NOT_FOUND"
        assert await reason_of(turn.begin()) == "DELETED"
        assert await reason_of(turn.commit(PARK)) == "DELETED"

        # The offer passes over a session that is locked just then; the next look finds it.
        await ledger.dispatcher.rescan()
        erasure = (await runner.receive()).erasure
        assert erasure.thread == ledger.thread
        finish = turn_pb2.FinishDeletionRequest(thread=ledger.thread)
        await ledger.turns.FinishDeletion(finish, None)
        await ledger.turns.FinishDeletion(finish, None)
        await ledger.dispatcher.rescan()
    left = await ledger.db.fetch("SELECT * FROM ledger.sessions")
    assert [(row["pinned"], row["runtime"], row["agent_name"]) for row in left] == [
        (None, None, b"")
    ]
    bodies = "SELECT count(*) FROM ledger.log WHERE sealed IS NOT NULL"
    assert await ledger.db.fetchval(bodies) == 0
    for table in ("turns", "calls", "rounds", "commits"):
        assert await ledger.db.fetchval(f"SELECT count(*) FROM ledger.{table}") == 0
    verify = turn_pb2.VerifyLogRequest(session_id=ledger.thread.session_id)
    found = await ledger.turns.VerifyLog(verify, None)
    assert all(finding.informational for finding in found.findings)
    assert await reason_of(turn.begin()) == "DELETED"


async def test_a_session_that_lives_is_not_erased(ledger: Ledger) -> None:
    await ledger.create("go")
    finish = turn_pb2.FinishDeletionRequest(thread=ledger.thread)
    await ledger.turns.FinishDeletion(finish, None)
    async with ledger.runner() as runner:
        await (await runner.claimed()).say("hi")


async def test_an_unfinished_deletion_is_offered_to_the_next_runner(ledger: Ledger) -> None:
    await ledger.create()
    await ledger.delete()
    async with ledger.runner() as runner:
        await ledger.dispatcher.rescan()
        assert (await runner.receive()).erasure.thread == ledger.thread


async def test_a_settling_turn_does_not_keep_a_session_alive(ledger: Ledger) -> None:
    await ledger.create("go")
    async with ledger.runner() as runner:
        turn = await runner.claimed()
        await turn.ask((CUSTOM, ALLOW), commit=PARK)
        await ledger.send(interrupt())
        await ledger.delete()
    assert await ledger.db.fetchval("SELECT deleted FROM ledger.threads")


async def test_the_schema_is_what_the_migrations_make(dsn: str) -> None:
    assert {schema.sessions.metadata, log_schema.log.metadata} == {tables.metadata}
    await assert_schema_matches("ledger", tables.metadata, dsn)


@pytest.mark.parametrize("module", [lane_store, session_store, lease_store])
async def test_every_statement_prepares(dsn: str, module: Any) -> None:
    assert await assert_sql_prepares(module, dsn) > 3


async def test_every_write_of_a_lane_prepares(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for count in range(len(lane_write_store.SECTIONS) + 1):
            for names in combinations(lane_write_store.SECTIONS, count):
                for plain in (0, 1, 3):
                    given = tuple((name, plain) for name in names)
                    await connection.prepare(lane_write_store.sql_of(given))
    finally:
        await connection.close()
