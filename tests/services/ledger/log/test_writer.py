"""Appends: positions without gaps, times that never step back, one statement."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from counterfoil.ledger.v1 import events_pb2, session_events_pb2

from foundation.storage import Database
from services.ledger.log_writer import Draft, LogHead, plan, render, splice
from tests.services.ledger.log.support import (
    RING,
    WORKSPACE,
    append,
    append_in,
    create,
    event,
    head_of,
    mark,
    queued,
)

NOW = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


def test_times_never_step_back_within_a_log() -> None:
    first = plan(RING, WORKSPACE, "s", LogHead(), [event("e1")], NOW)
    later = plan(RING, WORKSPACE, "s", first.head, [event("e2")], NOW - timedelta(hours=1))
    assert later.rows[0].processed_at == NOW
    assert later.head.last_processed_at == NOW


def test_a_queued_event_has_no_time_and_moves_no_time() -> None:
    planned = plan(RING, WORKSPACE, "s", LogHead(), [queued("e1")], NOW)
    assert planned.rows[0].processed_at is None
    assert planned.head.last_processed_at is None


def test_a_mark_finds_its_queued_row_in_the_same_plan() -> None:
    planned = plan(RING, WORKSPACE, "s", LogHead(), [queued("e1"), event("e2"), mark("e1")], NOW)
    assert planned.rows[2].refers_position == 1


@pytest.mark.parametrize("refers", [None, 0, 1, 7])
def test_a_mark_without_a_queued_row_before_it_is_refused(refers: int | None) -> None:
    with pytest.raises(ValueError, match="no queued row"):
        plan(RING, WORKSPACE, "s", LogHead(), [mark("e1", refers)], NOW)


def test_the_body_is_rendered_without_its_time_and_spliced_as_last_member() -> None:
    message = events_pb2.Event(id="sevt_1", session_deleted=session_events_pb2.SessionDeleted())
    message.processed_at.FromDatetime(NOW)
    stored = render(message)
    assert stored == b'{"id":"sevt_1","type":"session.deleted"}'
    assert splice(stored, NOW) == stored[:-1] + b',"processed_at":"2026-01-01T12:00:00.123Z"}'
    assert splice(stored, None) == stored[:-1] + b',"processed_at":null}'


async def test_positions_have_no_gaps_when_writers_race(db: Database) -> None:
    await create(db, "s")
    await asyncio.gather(*(append(db, "s", event(f"a{n}"), queued(f"b{n}")) for n in range(20)))
    rows = await db.fetch("SELECT position FROM ledger.log ORDER BY position")
    assert [row["position"] for row in rows] == list(range(1, 41))
    assert (await head_of(db, "s")).position == 40


async def test_a_failed_transaction_leaves_no_trace(db: Database) -> None:
    async def fail() -> None:
        async with db.commit("ledger.test") as c:
            await append_in(c, "s", [event("e1")])
            raise ZeroDivisionError

    await create(db, "s")
    with pytest.raises(ZeroDivisionError):
        await fail()
    planned = await append(db, "s", event("e2"))
    assert planned.rows[0].position == 1


async def test_the_index_of_queued_rows_follows_queueing_and_marks(db: Database) -> None:
    async def waiting() -> list[int]:
        rows = await db.fetch("SELECT position FROM ledger.queued ORDER BY position")
        return [row["position"] for row in rows]

    await create(db, "s")
    await append(db, "s", queued("e1"), queued("e2"))
    assert await waiting() == [1, 2]
    await append(db, "s", mark("e1", 1), queued("e3"), mark("e3"))
    assert await waiting() == [2]


async def test_bodies_rest_sealed(db: Database) -> None:
    await create(db, "s")
    await append(db, "s", Draft.event("e1", "agent.message", b'{"id":"e1","secret":"plain"}'))
    sealed = await db.fetchval("SELECT sealed FROM ledger.log")
    assert b"plain" not in sealed
