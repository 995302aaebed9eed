"""Verify: whatever is changed in a stored log is found, at its position."""

from datetime import UTC, datetime, timedelta

import pytest
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.types.v1.reference_pb2 import Head

from foundation.errors import Failure
from foundation.storage import Database
from services.ledger import log_chain, log_store
from services.ledger.log_row import LogHead
from services.ledger.log_writer import Draft, plan
from services.ledger.verify import Verifier
from tests.services.ledger.log.support import (
    RING,
    WORKSPACE,
    append,
    body,
    create,
    delete,
    event,
    head_of,
    insert,
    mark,
    probe,
    queued,
)

VOUCHED = Head(seq=4, digest=b"d" * 32)


async def write_log(db: Database, session_id: str = "s") -> None:
    """1 queued, 2 running, 3 mark, 4 message, 5 idle with a transcript head, 6 queued, 7 error."""
    await create(db, session_id)
    await append(db, session_id, queued("e1"), event("e2", "session.status_running"), mark("e1"))
    await append(db, session_id, event("e3", text="hello"))
    idle = "session.thread_status_idle"
    await append(db, session_id, Draft.event("e4", idle, body("e4", idle), VOUCHED), queued("e5"))
    await append(db, session_id, event("e6", "session.error"))


async def change(db: Database, sql: str, *args: object) -> None:
    async with db.commit("ledger.test") as c:
        await c.execute(sql, *args)


async def verify(
    db: Database, expected: turn_pb2.LogPoint | None = None
) -> turn_pb2.VerifyLogResponse:
    return await Verifier(db, RING, probe).verify(WORKSPACE, "s", expected)


async def wrong(db: Database, expected: turn_pb2.LogPoint | None = None) -> list[int]:
    response = await verify(db, expected)
    return [finding.seq for finding in response.findings if not finding.informational]


async def test_an_untouched_log_holds_and_hands_out_what_the_transcript_can_check(
    db: Database,
) -> None:
    await write_log(db)
    response = await verify(db)
    head = await head_of(db, "s")
    assert not response.findings
    assert response.entries == 7
    assert response.head == turn_pb2.LogPoint(position=head.position, digest=head.digest)
    assert [(v.position, v.head) for v in response.vouches] == [(5, VOUCHED)]
    assert [point.position for point in response.points] == list(range(1, 8))
    assert response.points[-1].digest == head.digest


async def test_an_empty_log_holds(db: Database) -> None:
    await create(db, "s")
    response = await verify(db)
    assert not response.findings
    assert response.head == turn_pb2.LogPoint()


_FLIP = "set_byte({0}, octet_length({0}) - 1, get_byte({0}, octet_length({0}) - 1) # 1)"


@pytest.mark.parametrize(
    ("position", "change_to"),
    [
        (4, "workspace_id = 'wrkspc_2'"),
        (4, "session_id = 's2'"),
        (4, "position = 40"),
        (4, "kind = 2"),
        (1, "kind = 1"),
        (3, "kind = 1"),
        (4, "kind = 9"),
        (4, "event_id = 'e9'"),
        (3, "event_id = 'e9'"),
        (4, "event_type = 'agent.thinking'"),
        (3, "event_type = 'user.interrupt'"),
        (4, "processed_at = processed_at + interval '1 microsecond'"),
        (3, "processed_at = processed_at - interval '1 microsecond'"),
        (4, "processed_at = NULL"),
        (6, "processed_at = now()"),
        (3, "refers_position = 2"),
        (3, "refers_position = NULL"),
        (4, "refers_position = 1"),
        (4, f"sealed = {_FLIP.format('sealed')}"),
        (4, "sealed = ''"),
        (3, "sealed = '\\x00'"),
        (4, f"commitment = {_FLIP.format('commitment')}"),
        (3, "commitment = '\\x00'"),
        (4, f"digest = {_FLIP.format('digest')}"),
        (5, "transcript_seq = 5"),
        (5, "transcript_seq = NULL"),
        (5, f"transcript_digest = {_FLIP.format('transcript_digest')}"),
        (5, "transcript_digest = NULL"),
        (4, "transcript_seq = 1, transcript_digest = '\\x00'"),
    ],
)
async def test_a_change_in_any_column_is_named_at_its_row(
    db: Database, position: int, change_to: str
) -> None:
    await write_log(db)
    await change(db, f"UPDATE ledger.log SET {change_to} WHERE position = {position}")
    assert (await wrong(db))[0] == position


async def test_a_changed_row_is_one_finding_not_one_for_every_row_behind_it(db: Database) -> None:
    await write_log(db)
    flip = f"UPDATE ledger.log SET digest = {_FLIP.format('digest')} WHERE position = 2"
    await change(db, flip)
    assert await wrong(db) == [2]


async def test_the_table_of_columns_is_complete(db: Database) -> None:
    rows = await db.fetch(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = 'ledger' AND table_name = 'log'"
    )
    assert {row["column_name"] for row in rows} == {
        "workspace_id",
        "session_id",
        "position",
        "kind",
        "event_id",
        "event_type",
        "processed_at",
        "refers_position",
        "sealed",
        "commitment",
        "digest",
        "transcript_seq",
        "transcript_digest",
    }


async def test_swapped_rows_are_found(db: Database) -> None:
    await write_log(db)
    await change(db, "UPDATE ledger.log SET position = -2 WHERE position = 2")
    await change(db, "UPDATE ledger.log SET position = 2 WHERE position = 4")
    await change(db, "UPDATE ledger.log SET position = 4 WHERE position = -2")
    assert (await wrong(db))[0] == 2
    assert 4 in await wrong(db)


async def test_swapped_bodies_are_found(db: Database) -> None:
    await write_log(db)
    await change(
        db,
        "UPDATE ledger.log entry SET sealed = other.sealed FROM ledger.log other"
        " WHERE entry.position + other.position = 9 AND entry.position IN (2, 7)",
    )
    assert await wrong(db) == [2, 7]


async def test_a_row_taken_out_of_the_middle_is_named(db: Database) -> None:
    await write_log(db)
    await change(db, "DELETE FROM ledger.log WHERE position = 4")
    assert (await wrong(db))[0] == 4


async def test_a_tail_that_was_taken_away_is_seen_from_the_head_row(db: Database) -> None:
    await write_log(db)
    await change(db, "DELETE FROM ledger.log WHERE position >= 6")
    assert 6 in await wrong(db)


async def test_a_tail_that_was_taken_away_with_its_head_is_seen_from_outside(db: Database) -> None:
    await write_log(db)
    kept = (await verify(db)).head
    row = await db.fetchrow("SELECT digest, processed_at FROM ledger.log WHERE position = 4")
    assert row is not None
    await change(db, "DELETE FROM ledger.log WHERE position >= 5")
    await change(db, "DELETE FROM ledger.queued")
    await change(
        db,
        "UPDATE heads SET log_position = 4, log_digest = $1, last_processed_at = $2",
        row["digest"],
        row["processed_at"],
    )
    assert await wrong(db) == []
    assert await wrong(db, kept) == [5]


async def test_a_rewritten_history_is_seen_from_outside(db: Database) -> None:
    await write_log(db)
    kept = (await verify(db)).head
    await change(db, "DELETE FROM ledger.log")
    await change(db, "DELETE FROM ledger.queued")
    await change(db, "UPDATE heads SET log_position = 0, log_digest = '', last_processed_at = NULL")
    await append(db, "s", *(event(f"x{n}") for n in range(7)))
    assert await wrong(db) == []
    assert await wrong(db, kept) == [7]


@pytest.mark.parametrize(
    "forged",
    [
        "log_position = log_position + 1",
        "log_position = log_position - 1",
        f"log_digest = {_FLIP.format('log_digest')}",
        "last_processed_at = last_processed_at + interval '1 microsecond'",
        "last_processed_at = NULL",
    ],
)
async def test_a_forged_head_is_found(db: Database, forged: str) -> None:
    await write_log(db)
    await change(db, f"UPDATE heads SET {forged}")
    assert await wrong(db)


async def test_a_forged_row_behind_the_head_is_found(db: Database) -> None:
    await write_log(db)
    head = await head_of(db, "s")
    async with db.commit("ledger.test") as c:
        now = (head.last_processed_at or pytest.fail("no time")) + timedelta(seconds=1)
        await insert(c, plan(RING, WORKSPACE, "s", head, [event("forged")], now))
    assert 8 in await wrong(db)


@pytest.mark.parametrize(
    "tampering",
    [
        "DELETE FROM ledger.queued WHERE position = 6",
        "INSERT INTO ledger.queued VALUES ('wrkspc_1', 's', 1)",
    ],
)
async def test_the_index_of_queued_rows_is_verified(db: Database, tampering: str) -> None:
    await write_log(db)
    await change(db, tampering)
    assert len(await wrong(db)) == 1


async def test_erased_content_is_reported_as_erased_and_the_chain_still_holds(db: Database) -> None:
    await write_log(db)
    async with db.commit("ledger.test") as c:
        await log_store.erase(c, WORKSPACE, "s")
    response = await verify(db)
    assert [f.seq for f in response.findings] == [1, 2, 4, 5, 6, 7]
    assert all(f.informational and "erased" in f.message for f in response.findings)


async def test_a_deleted_session_still_verifies(db: Database) -> None:
    await write_log(db)
    await delete(db, "s")
    assert await wrong(db) == []


async def test_verify_leaves_an_access_record_with_the_head(db: Database) -> None:
    await write_log(db)
    response = await verify(db)
    row = await db.fetchrow("SELECT * FROM ledger.access")
    assert row is not None
    assert row["action"] == "verify"
    assert (row["position"], row["digest"]) == (7, response.head.digest)


async def test_a_foreign_workspace_does_not_find_the_log(db: Database) -> None:
    await write_log(db)
    with pytest.raises(Failure, match="not found"):
        await Verifier(db, RING, probe).verify("wrkspc_2", "s")


def test_no_two_headers_are_equal_by_shifting_text_between_columns() -> None:
    one = log_chain.header(1, 1, "ab", "c", None, None, None)
    two = log_chain.header(1, 1, "a", "bc", None, None, None)
    assert one != two


def test_the_commitment_says_nothing_about_a_likely_body() -> None:
    drafts = [event("e1"), event("e1")]
    rows = plan(RING, WORKSPACE, "s", LogHead(), drafts, datetime(2026, 1, 1, tzinfo=UTC)).rows
    assert rows[0].body == rows[1].body
    assert rows[0].commitment != rows[1].commitment
