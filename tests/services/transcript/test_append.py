"""Appends: one writer wins, an id is stored once, nothing is lost or rewritten."""

import asyncio

import pytest
from counterfoil.transcript.v1 import transcript_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Attempt, Head

from foundation.errors import Failure
from foundation.storage.testing import assert_schema_matches, assert_sql_prepares
from services.transcript import store
from services.transcript.schema import metadata
from tests.services.transcript.bench import EMPTY, FOREIGN, Bench, answer
from tests.support.postgres import SessionPostgres


def reason_of(caught: pytest.ExceptionInfo[Failure]) -> int:
    return caught.value.reason


async def test_schema_and_sql_agree(postgres: SessionPostgres) -> None:
    async with postgres.database("transcript") as dsn:
        await assert_schema_matches("transcript", metadata, dsn)
        assert await assert_sql_prepares(store, dsn) > 10


async def test_an_entry_comes_back_byte_for_byte(bench: Bench) -> None:
    content = answer("tent_1", "toolu_1")
    content.tool_versions["b"] = "2"
    content.tool_versions["a"] = "1"
    stored = await bench.append("tent_1", EMPTY, content=content)
    assert stored.created
    assert stored.head == Head(seq=1, digest=stored.entry.digest)
    listed = await bench.list()
    assert listed.entries == [stored.entry]
    assert listed.entries[0].content == content
    assert listed.entries[0].attempt == Attempt(epoch=1, number=1)
    assert listed.head == stored.head


async def test_a_repeat_returns_the_stored_entry(bench: Bench) -> None:
    first = await bench.append("tent_1", EMPTY)
    await bench.append("tent_2", first.head, content=answer("tent_2", "a"))
    other = pb.EntryContent(blocks=[b'"another"'])
    again = await bench.append("tent_1", EMPTY, content=other)
    assert not again.created
    assert again.entry == first.entry
    assert again.head.seq == 2


async def test_a_repeat_with_the_current_head_stores_nothing(bench: Bench) -> None:
    first = await bench.append("tent_1", EMPTY)
    again = await bench.append("tent_1", first.head)
    assert not again.created
    assert again.head == first.head


async def test_a_wrong_head_is_refused_and_raises_no_epoch(bench: Bench) -> None:
    first = await bench.append("tent_1", EMPTY)
    for head in (EMPTY, Head(seq=1, digest=b"x" * 32), Head(seq=2, digest=first.head.digest)):
        with pytest.raises(Failure) as caught:
            await bench.append("tent_2", head, epoch=9)
        assert reason_of(caught) == reasons.ERROR_REASON_HEAD_MISMATCH
        assert caught.value.metadata["seq"] == "1"
    assert (await bench.append("tent_2", first.head, epoch=1)).created


async def test_an_append_to_a_thread_without_entries_must_expect_none(bench: Bench) -> None:
    with pytest.raises(Failure) as caught:
        await bench.append("tent_1", Head(seq=3, digest=b"x" * 32))
    assert reason_of(caught) == reasons.ERROR_REASON_HEAD_MISMATCH
    assert await bench.sql("SELECT count(*) FROM transcript.heads") == 0


async def test_a_stale_epoch_is_fenced_with_the_highest_one(bench: Bench) -> None:
    head = (await bench.append("tent_1", EMPTY)).head
    await bench.fence(5)
    for entry_id in ("tent_1", "tent_2"):
        with pytest.raises(Failure) as caught:
            await bench.append(entry_id, head, epoch=4)
        assert reason_of(caught) == reasons.ERROR_REASON_FENCED
        assert caught.value.metadata["epoch_max"] == "5"
    assert (await bench.append("tent_2", head, epoch=5)).created


async def test_adopting_an_entry_raises_the_epoch(bench: Bench) -> None:
    await bench.append("tent_1", EMPTY)
    assert not (await bench.append("tent_1", EMPTY, epoch=3)).created
    with pytest.raises(Failure) as caught:
        await bench.append("tent_1", EMPTY, epoch=2)
    assert reason_of(caught) == reasons.ERROR_REASON_FENCED


async def test_fence_returns_head_and_the_entries_of_the_turn(bench: Bench) -> None:
    empty = await bench.fence(1)
    assert empty.head == EMPTY
    assert not empty.entries
    first = await bench.append("tent_1", EMPTY)
    second = await bench.append("tent_2", first.head, turn_id="turn_2")
    for _ in range(2):
        fenced = await bench.fence(2, "turn_2")
        assert fenced.head == second.head
        assert fenced.entries == [second.entry]
    with pytest.raises(Failure) as caught:
        await bench.fence(1)
    assert reason_of(caught) == reasons.ERROR_REASON_FENCED
    assert not (await bench.verify()).findings


async def test_of_racing_appends_one_wins(bench: Bench) -> None:
    head = (await bench.append("tent_1", EMPTY)).head
    answers = await asyncio.gather(
        *(bench.append(f"tent_r{n}", head) for n in range(8)), return_exceptions=True
    )
    stored = [a for a in answers if isinstance(a, pb.AppendEntryResponse)]
    refused = [a for a in answers if isinstance(a, Failure)]
    assert [a.created for a in stored] == [True]
    assert {f.reason for f in refused} == {reasons.ERROR_REASON_HEAD_MISMATCH}
    assert len(refused) == 7
    assert (await bench.list()).head == stored[0].head


async def test_of_racing_twins_one_creates_and_all_agree(bench: Bench) -> None:
    answers = await asyncio.gather(*(bench.append("tent_1", EMPTY) for _ in range(8)))
    assert sum(a.created for a in answers) == 1
    assert len({a.entry.digest for a in answers}) == 1


async def test_ranges(bench: Bench) -> None:
    await bench.fill(5)
    by_seq = {entry.seq: entry for entry in (await bench.list()).entries}
    for after, through, expected in [(0, 0, 5), (2, 0, 3), (1, 3, 2), (5, 0, 0), (4, 9, 1)]:
        listed = await bench.list(after, through)
        assert [e.seq for e in listed.entries] == list(range(after + 1, after + 1 + expected))
        assert listed.head.seq == 5
        assert listed.before.seq == after
        assert listed.before.digest == (by_seq[after].digest if after else b"")


async def test_content_of_ordinary_size_stays_in_its_row(bench: Bench) -> None:
    first = await bench.append("tent_1", EMPTY, content=pb.EntryContent(blocks=[b"x" * 3_000]))
    await bench.append("tent_2", first.head, content=pb.EntryContent(blocks=[b"x" * 9_000]))
    where = "SELECT pg_column_toast_chunk_id(content) IS NULL FROM transcript.entries ORDER BY seq"
    assert [row[0] for row in await bench.db.fetch(where)] == [True, False]


async def test_pages_end_with_their_bytes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a history holds, every page of it fits in a message."""
    monkeypatch.setattr(store, "PAGE_BYTES", 1)
    await bench.fill(3)
    for after in range(3):
        listed = await bench.list(after)
        assert ([e.seq for e in listed.entries], listed.head.seq) == ([after + 1], 3)
    assert not (await bench.list(3)).entries
    fenced = await bench.fence(2)
    assert ([e.seq for e in fenced.entries], fenced.has_more) == ([1], True)
    monkeypatch.undo()
    fenced = await bench.fence(2)
    assert ([e.seq for e in fenced.entries], fenced.has_more) == ([1, 2, 3], False)


async def test_a_hole_behind_a_full_page_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.fill(3)
    monkeypatch.setattr(store, "PAGE_BYTES", 1)
    await bench.tamper("DELETE FROM transcript.entries WHERE seq = 3")
    with pytest.raises(Failure) as caught:
        await bench.list()
    assert caught.value.reason == reasons.ERROR_REASON_CORRUPT


async def test_a_foreign_workspace_sees_and_disturbs_nothing(bench: Bench) -> None:
    head = await bench.fill(2)
    assert await bench.list(thread=FOREIGN) == pb.ListEntriesResponse(head=EMPTY)
    assert not (await bench.verify(FOREIGN)).entries
    own = await bench.append("tent_1", EMPTY, thread=FOREIGN)
    assert own.created
    assert (await bench.list()).head == head


async def test_a_head_that_cannot_be_is_refused(bench: Bench) -> None:
    for head in (Head(seq=0, digest=b"x" * 32), Head(seq=1), Head(seq=1, digest=b"x")):
        with pytest.raises(Failure) as caught:
            await bench.append("tent_1", head)
        assert caught.value.path == "expected_head.digest"


async def test_the_parts_of_an_entry_must_belong_together(bench: Bench) -> None:
    twice = answer("tent_1", "a", "b")
    twice.mappings[1].block_index = 0
    with pytest.raises(Failure) as caught:
        await bench.append("tent_1", EMPTY, content=twice)
    assert caught.value.path == "content.mappings"
    lone = pb.EntryContent(mappings=answer("tent_1", "a").mappings)
    with pytest.raises(Failure) as caught:
        await bench.append("tent_1", EMPTY, content=lone)
    assert reason_of(caught) == reasons.ERROR_REASON_INVALID_FIELD


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE transcript.entries SET round = 9",
        "UPDATE transcript.entries SET content = 'x'",
        "UPDATE transcript.entries SET content = NULL, round = 9",
        "DELETE FROM transcript.entries",
        "TRUNCATE transcript.entries",
        "DELETE FROM transcript.heads",
        "UPDATE transcript.id_map SET event_id = 'x'",
        "DELETE FROM transcript.id_map",
        "DELETE FROM transcript.access",
        "UPDATE transcript.access SET action = 'x'",
    ],
)
async def test_the_database_refuses_to_rewrite(bench: Bench, statement: str) -> None:
    await bench.fill(2)
    await bench.verify()
    with pytest.raises(Exception, match=r"append-only|refuses"):
        await bench.sql(statement)
