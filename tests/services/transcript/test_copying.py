"""A copied beginning of a history: the same blocks under ids of its own, in a chain of its own."""

import asyncio

import pytest
from counterfoil.transcript.v1 import transcript_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Fence, Head, ThreadRef

from foundation import failpoints, ids
from foundation.errors import Failure
from tests.services.transcript.bench import CONTEXT, FOREIGN, THREAD, Bench, answer

FORK = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_2", thread_id="sthr_2")


async def copy(
    bench: Bench,
    head: Head,
    after: int = 0,
    *,
    epoch: int = 1,
    source: ThreadRef = THREAD,
    target: ThreadRef = FORK,
) -> pb.CopyThreadResponse:
    request = pb.CopyThreadRequest(
        fence=Fence(thread=target, epoch=epoch), source=source, source_head=head, seq_after=after
    )
    return await bench.service.CopyThread(request, CONTEXT)


async def copy_all(bench: Bench, head: Head, *, epoch: int = 1) -> list[pb.CopyThreadResponse]:
    pages = [await copy(bench, head, epoch=epoch)]
    while pages[-1].last.seq < head.seq:
        pages.append(await copy(bench, head, pages[-1].last.seq, epoch=epoch))
    return pages


def reason(failure: pytest.ExceptionInfo[Failure]) -> str:
    return reasons.ErrorReason.Name(failure.value.reason).removeprefix("ERROR_REASON_")


async def test_a_copy_has_the_same_blocks_and_ids_of_its_own(bench: Bench) -> None:
    head = await bench.fill(3)
    await bench.append("tent_4", head, content=answer("tent_4", "later"))
    (page,) = await copy_all(bench, head)
    source, target = (await bench.list(through=3)).entries, (await bench.list(thread=FORK)).entries
    assert [one.id for one in target] == [
        ids.copied("entry", FORK.thread_id, one.id) for one in source
    ]
    assert len(target) == 3
    for before, after in zip(source, target, strict=True):
        assert (after.seq, after.kind, after.round) == (before.seq, before.kind, before.round)
        assert after.content.blocks == before.content.blocks
        assert after.content.envelope == before.content.envelope
        assert after.digest != before.digest
        assert after.turn_id == ids.copied("turn", FORK.thread_id, before.turn_id)
    assert page.last.id == target[-1].id
    assert page.last.digest == target[-1].digest
    assert not page.last.HasField("content")
    assert not (await bench.verify(FORK)).findings


async def test_what_names_the_source_is_left_out_and_calls_keep_their_names(bench: Bench) -> None:
    content = answer("tent_1", "toolu_1")
    content.operation_id, content.snapshot_id = "op_model", "snap_1"
    content.provider_request_id = "req_of_the_provider"
    head = (await bench.append("tent_1", Head(), content=content)).head
    results = pb.EntryContent(
        results=[
            pb.ResultReference(
                operation_id="op_tent_1_0", block_index=0, projection_digest=b"p" * 32
            )
        ],
        log_point=pb.LogPoint(position=3, digest=b"l" * 32),
        event_ids=["sevt_1"],
        skipped_entry_ids=["tent_1"],
    )
    head = (await bench.append("tent_2", head, content=results)).head
    (page,) = await copy_all(bench, head)
    assert list(page.operation_ids) == ["op_tent_1_0"]
    first, second = (one.content for one in (await bench.list(thread=FORK)).entries)
    expected = pb.EntryContent()
    expected.CopyFrom(content)
    expected.operation_id = expected.snapshot_id = ""
    expected.mappings[0].event_id = ids.copied("event", FORK.thread_id, "sevt_tent_1_0")
    assert first == expected
    assert [one.operation_id for one in second.results] == ["op_tent_1_0"]
    assert second.results[0].projection_digest == b"p" * 32
    assert list(second.skipped_entry_ids) == [ids.copied("entry", FORK.thread_id, "tent_1")]
    assert not second.HasField("log_point")
    assert not second.event_ids
    request = pb.ResolveMappingRequest(thread=FORK, operation_id="op_tent_1_0")
    found = await bench.service.ResolveMapping(request, CONTEXT)
    assert found.mapping == expected.mappings[0]


async def test_pages_make_one_history_wherever_an_owner_dies(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.transcript.copying._ENTRIES_MAX", 2)
    head = await bench.fill(7)

    class Died(Exception):
        pass

    hits = 0

    async def die(name: str) -> None:
        nonlocal hits
        hits += name.startswith("transcript.copy")
        if hits in (1, 3, 4, 8, 11, 12, 19):
            raise Died

    failpoints.install(die)
    try:
        for epoch in range(1, 40):
            try:
                pages = await copy_all(bench, head, epoch=epoch)
            except Died:
                continue
            break
        else:
            raise AssertionError("it was never copied")
    finally:
        failpoints.install(None)
    assert [page.last.seq for page in pages] == [2, 4, 6, 7]
    verified = await bench.verify(FORK)
    assert (verified.entries, len(verified.findings)) == (7, 0)
    source, target = (await bench.list()).entries, (await bench.list(thread=FORK)).entries
    assert [e.content.blocks for e in target] == [e.content.blocks for e in source]
    assert (await copy_all(bench, head, epoch=40))[-1] == pages[-1]
    assert verified.head.seq == 7


async def test_copies_at_the_same_time_are_one(bench: Bench) -> None:
    head = await bench.fill(5)
    pages = await asyncio.gather(*(copy(bench, head) for _ in range(6)))
    assert all(page == pages[0] for page in pages)
    assert (await bench.verify(FORK)).entries == 5


async def test_a_copy_lives_on_its_own(bench: Bench) -> None:
    head = await bench.fill(3)
    (page,) = await copy_all(bench, head)
    await bench.tombstone()
    appended = await bench.append(
        "tent_own", Head(seq=3, digest=page.last.digest), thread=FORK, epoch=2
    )
    assert appended.head.seq == 4
    assert not (await bench.verify(FORK)).findings
    assert (await bench.list(thread=FORK)).entries[0].content.blocks == [b"{}"]


async def test_a_copy_of_a_copy_is_the_same_history(bench: Bench) -> None:
    head = await bench.fill(3)
    (page,) = await copy_all(bench, head)
    third = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_3", thread_id="sthr_3")
    at = Head(seq=3, digest=page.last.digest)
    await copy(bench, at, source=FORK, target=third)
    blocks = [e.content.blocks for e in (await bench.list()).entries]
    assert [e.content.blocks for e in (await bench.list(thread=third)).entries] == blocks
    assert not (await bench.verify(third)).findings


async def test_older_owners_and_foreign_sources_are_refused(bench: Bench) -> None:
    head = await bench.fill(2)
    await copy(bench, head, epoch=5)
    with pytest.raises(Failure) as old:
        await copy(bench, head, epoch=4)
    assert reason(old) == "FENCED"
    with pytest.raises(Failure) as foreign:
        await copy(bench, head, source=FOREIGN)
    assert reason(foreign) == "NOT_FOUND"


async def test_a_thread_with_a_history_of_its_own_takes_no_other(bench: Bench) -> None:
    head = await bench.fill(3)
    await bench.append("tent_own", Head(), thread=FORK)
    short = Head(seq=1, digest=(await bench.list()).entries[0].digest)
    for through, after in ((head, 0), (head, 1), (head, 2), (short, 0)):
        with pytest.raises(Failure) as caught:
            await copy(bench, through, after)
        assert reason(caught) == "WRONG_STATE", (through.seq, after)
    assert (await bench.verify(FORK)).entries == 1


async def test_no_page_is_skipped(bench: Bench) -> None:
    head = await bench.fill(3)
    with pytest.raises(Failure) as caught:
        await copy(bench, head, 2)
    assert reason(caught) == "WRONG_STATE"


async def test_nothing_is_copied_that_the_chain_does_not_vouch_for(bench: Bench) -> None:
    head = await bench.fill(3)
    with pytest.raises(Failure) as other:
        await copy(bench, Head(seq=3, digest=b"x" * 32))
    assert reason(other) == "CORRUPT"
    with pytest.raises(Failure) as beyond:
        await copy(bench, Head(seq=9, digest=b"x" * 32), 3)
    assert reason(beyond) == "CORRUPT"
    await bench.tamper("UPDATE transcript.entries SET round = 9 WHERE seq = 2")
    with pytest.raises(Failure) as changed:
        await copy(bench, head)
    assert reason(changed) == "CORRUPT"
    assert not (await bench.list(thread=FORK)).entries


async def test_a_deleted_thread_gives_and_takes_nothing(bench: Bench) -> None:
    head = await bench.fill(2)
    await bench.service.Tombstone(pb.TombstoneRequest(thread=FORK), CONTEXT)
    with pytest.raises(Failure) as target:
        await copy(bench, head)
    assert reason(target) == "DELETED"
    await bench.tombstone()
    third = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_3", thread_id="sthr_3")
    with pytest.raises(Failure) as source:
        await copy(bench, head, target=third)
    assert reason(source) == "DELETED"
