"""P20 and P21: what a fork's model is shown is, byte for byte, what the source shows up to the cut,
with all that was taken from it; and from then on each lives on its own."""

import json
import random
from typing import Any

import pytest
from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.transcript.v1 import transcript_pb2, transcript_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Fence, Head, ThreadRef

from foundation.errors import Failure
from services.context.cache import WarmCache
from tests.services.context.conftest import THREAD, Bench
from tests.services.context.histories import projection, text
from tests.services.context.test_making_it_fit import WINDOW, round_of, small, turn_of

FORK = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_2", thread_id="sthr_2")
INNER = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_3", thread_id="sthr_3")
FOREIGN = ThreadRef(workspace_id="wrkspc_2", session_id="sesn_1", thread_id="sthr_1")
IMAGE = b'{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aW1hZ2U="}}'
WIDE = 400_000


async def fork(
    bench: Bench, cut: Head, source: ThreadRef = THREAD, target: ThreadRef = FORK
) -> Head:
    """Copy transcript and losses; the new thread's head."""
    fence = Fence(thread=target, epoch=1)
    stub = transcript_pb2_grpc.TranscriptServiceStub(bench.host.channel("service"))
    request = transcript_pb2.CopyThreadRequest(fence=fence, source=source, source_head=cut)
    last = (await stub.CopyThread(request)).last
    assert last.seq == cut.seq
    head = Head(seq=last.seq, digest=last.digest)
    await copy(bench, cut, head, source, target)
    return head


async def copy(
    bench: Bench,
    cut: Head,
    head: Head,
    source: ThreadRef = THREAD,
    target: ThreadRef = FORK,
    epoch: int = 1,
) -> None:
    request = pb.CopyThreadRequest(
        fence=Fence(thread=target, epoch=epoch), source=source, source_head=cut, head=head
    )
    await bench.another().CopyThread(request, None)


def messages(body: bytes) -> bytes:
    """The exact bytes of a request's messages, without the closing bracket."""
    start = body.index(b'"messages":') + len(b'"messages":')
    shown = body[start:].decode()
    _, end = json.JSONDecoder().raw_decode(shown)
    return shown[: end - 1].encode()


async def shown(
    bench: Bench, head: Head, thread: ThreadRef = FORK, *, window: int = WIDE, number: int = 1
) -> bytes:
    """What a process that knows nothing would send at `head`."""
    return (await prepared(bench, head, thread, window=window, number=number)).body


async def prepared(
    bench: Bench, head: Head, thread: ThreadRef = FORK, *, window: int = WIDE, number: int = 1
) -> pb.PreparedRequest:
    request = bench.request(
        thread=thread,
        head=head,
        turn_id="turn_look",
        number=number,
        pinned=small(archive=True, window=window),
    )
    response = await bench.another(WarmCache(0)).PrepareRequest(request, None)
    assert response.HasField("prepared"), response
    return response.prepared


async def archived(bench: Bench) -> Head:
    """A history of which results were archived; the head behind its second turn."""
    cut = Head()
    for number in range(3):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 6_600)
        if number == 1:
            cut = bench.head
    await bench.ask(text("and now?"))
    await bench.answer(
        text("one more"), b'{"type":"tool_use","id":"toolu_z","name":"t","input":{}}', uses=(1,)
    )
    await bench.results(_1=projection("y" * 6_000))
    made = await bench.prepare(pinned=small(archive=True))
    assert made.snapshot.transition_head.seq > 0
    return cut


def reason(failure: pytest.ExceptionInfo[Failure]) -> str:
    return reasons.ErrorReason.Name(failure.value.reason).removeprefix("ERROR_REASON_")


async def test_what_was_archived_behind_the_cut_stays_archived_in_the_fork(bench: Bench) -> None:
    cut = await archived(bench)
    source = messages(await shown(bench, bench.head, THREAD))
    head = await fork(bench, cut)
    body = await shown(bench, head)
    assert source.startswith(messages(body))
    assert b"<r0>" + b"x" * 500 not in body
    assert b"read_archive, ref" in body


async def test_a_fork_of_a_fork_shows_the_same(bench: Bench) -> None:
    cut = await archived(bench)
    head = await fork(bench, cut)
    inner = await fork(bench, head, FORK, INNER)
    assert await shown(bench, inner, INNER) == await shown(bench, head)


async def test_images_that_were_left_out_do_not_come_back(bench: Bench) -> None:
    await bench.ask(IMAGE, text("what is it"))
    first = await bench.prepare()
    await bench.prepare(number=2, overflowed_snapshot_id=first.snapshot.id)
    await bench.answer(text("cannot see it"))
    body = await shown(bench, await fork(bench, bench.head))
    assert b'"image"' not in body
    assert b"what is it" in body
    assert messages(body) == messages(await shown(bench, bench.head, THREAD))


async def test_a_checkpoint_up_to_the_cut_is_the_forks_too_and_is_not_announced(
    bench: Bench,
) -> None:
    for number in range(7):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 3_000)
    await bench.ask(text("next?"))
    made = await bench.prepare(pinned=small())
    assert made.compaction_id
    await bench.answer(text("yes"))
    head = await fork(bench, bench.head)
    found = await prepared(bench, head, window=WINDOW)
    assert found.snapshot.checkpoint_id not in ("", made.snapshot.checkpoint_id)
    assert not found.compaction_id
    source = await shown(bench, bench.head, THREAD, window=WINDOW)
    assert messages(found.body) == messages(source)
    assert await bench.rebuild(found.snapshot.id, FORK) == found.body
    inner = await prepared(bench, await fork(bench, head, FORK, INNER), INNER, window=WINDOW)
    assert messages(inner.body) == messages(found.body)
    assert not inner.compaction_id


async def test_behind_an_earlier_cut_a_later_checkpoint_is_not_used(bench: Bench) -> None:
    cuts: list[Head] = []
    before: list[bytes] = []
    for number in range(7):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 3_000)
        cuts.append(bench.head)
        before.append(messages(await shown(bench, bench.head, THREAD, number=number + 1)))
    await bench.ask(text("next?"))
    assert (await bench.prepare(pinned=small())).snapshot.checkpoint_id
    body = await shown(bench, await fork(bench, cuts[1]))
    assert b"The beginning of this conversation" not in body
    assert messages(body) == before[1]


async def test_each_goes_on_by_itself(bench: Bench) -> None:
    for number in range(4):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 3_000)
    head = await fork(bench, bench.head)
    expected = await shown(bench, head)
    for number in range(4, 9):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 3_000)
    await bench.ask(text("next?"))
    source = (await bench.prepare(pinned=small())).snapshot
    assert source.checkpoint_id
    assert await shown(bench, head, number=2) == expected
    # The fork archives by itself, and the source keeps what it has.
    narrow = await prepared(bench, head, window=WINDOW // 2, number=3)
    assert narrow.snapshot.transition_head.seq > 0
    again = await bench.prepare(number=2, pinned=small())
    assert again.snapshot.checkpoint_id == source.checkpoint_id
    await bench.tombstone(THREAD)
    assert await bench.rebuild(narrow.snapshot.id, FORK) == narrow.body


async def test_what_was_copied_first_stays(bench: Bench) -> None:
    cut = await archived(bench)
    head = await fork(bench, cut)
    expected = await shown(bench, head)
    count = "SELECT count(*) FROM context.transitions WHERE session_id = 'sesn_2'"
    copied = await bench.db.fetchval(count)
    assert copied > 0
    for epoch in (1, 2):
        await copy(bench, cut, head, epoch=epoch)
    assert await bench.db.fetchval(count) == copied
    assert await shown(bench, head, number=2) == expected


async def test_a_copy_without_losses_is_a_copy_too(bench: Bench) -> None:
    await turn_of(bench, "t0", "<r0>" + "x" * 6_600)
    cut = bench.head
    head = await fork(bench, cut)
    for number in (1, 2):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 6_600)
    await bench.ask(text("and now?"))
    await round_of(bench, "z", projection("y" * 6_000))
    assert (await bench.prepare(pinned=small(archive=True))).snapshot.transition_head.seq
    await copy(bench, cut, head)  # a call that was late
    assert b"x" * 6_600 in await shown(bench, head)


async def test_another_history_is_refused_and_nothing_is_recorded(bench: Bench) -> None:
    cut = await archived(bench)
    other = Head()
    for number in range(cut.seq):
        stub = transcript_pb2_grpc.TranscriptServiceStub(bench.host.channel("service"))
        request = transcript_pb2.AppendEntryRequest(
            fence=Fence(thread=FORK, epoch=1),
            expected_head=other,
            entry_id=f"tent_{number}",
            kind=transcript_pb2.TRANSCRIPT_ENTRY_KIND_INPUT,
            turn_id="turn_1",
            content=transcript_pb2.EntryContent(blocks=[text("another")]),
        )
        other = (await stub.AppendEntry(request)).head
    with pytest.raises(Failure) as caught:
        await copy(bench, cut, other)
    assert reason(caught) == "CORRUPT"
    count = "SELECT count(*) FROM context.fences WHERE session_id = 'sesn_2'"
    assert await bench.db.fetchval(count) == 0


async def test_what_cannot_be_read_is_withheld_in_both(bench: Bench) -> None:
    cut = await archived(bench)
    async with bench.db.commit("test") as c:
        await c.execute("SET LOCAL session_replication_role = replica")
        await c.execute("UPDATE context.transitions SET sealed = NULL WHERE session_id = 'sesn_1'")
    source = messages(await shown(bench, bench.head, THREAD))
    body = await shown(bench, await fork(bench, cut))
    assert source.startswith(messages(body))
    assert b"<r0>" not in body


async def test_older_owners_foreign_sources_and_deleted_threads_are_refused(bench: Bench) -> None:
    cut = await archived(bench)
    head = await fork(bench, cut)
    request = bench.request(thread=FORK, head=head, turn_id="turn_look", epoch=5)
    await bench.service.PrepareRequest(request, None)
    with pytest.raises(Failure) as old:
        await copy(bench, cut, head, epoch=4)
    assert reason(old) == "FENCED"
    with pytest.raises(Failure) as foreign:
        await copy(bench, cut, head, source=FOREIGN, epoch=5)
    assert reason(foreign) == "NOT_FOUND"
    await bench.tombstone(FORK)
    with pytest.raises(Failure) as dead:
        await copy(bench, cut, head, epoch=9)
    assert reason(dead) == "DELETED"


async def redact(bench: Bench, thread: ThreadRef, seq: int) -> None:
    request = pb.RedactRequest(thread=thread, entry_seq=seq, reader="ops", reason="a secret")
    await bench.another().Redact(request, None)


async def test_what_was_redacted_is_not_in_the_fork(bench: Bench) -> None:
    for number in range(7):
        await turn_of(bench, f"t{number}", f"<r{number}>" + "x" * 3_000)
    await bench.ask(text("next?"))
    assert (await bench.prepare(pinned=small())).snapshot.checkpoint_id
    await redact(bench, THREAD, 1)
    await bench.answer(text("yes"))
    body = await shown(bench, await fork(bench, bench.head))
    assert b"goal t0" not in body
    assert b"The beginning of this conversation" not in body
    assert b"goal t1" in body


async def test_a_redaction_that_is_faster_than_the_copy_fails_closed(bench: Bench) -> None:
    cut = await archived(bench)
    stub = transcript_pb2_grpc.TranscriptServiceStub(bench.host.channel("service"))
    request = transcript_pb2.CopyThreadRequest(
        fence=Fence(thread=FORK, epoch=1), source=THREAD, source_head=cut
    )
    last = (await stub.CopyThread(request)).last
    await redact(bench, FORK, 1)
    with pytest.raises(Failure) as caught:
        await copy(bench, cut, Head(seq=last.seq, digest=last.digest))
    assert reason(caught) == "CORRUPT"


@pytest.mark.parametrize("seed", range(6))
async def test_at_every_boundary_of_random_histories_a_fork_shows_the_same(
    bench: Bench, seed: int
) -> None:
    """Whatever was archived, left out or summarized, whenever: what the fork shows is what the
    source shows now of the same entries, in whichever order forks are made."""
    chance = random.Random(seed)
    cuts: list[Head] = []
    for number in range(chance.randint(4, 8)):
        sizes = [chance.choice((10, 900, 4_000, 7_000)) for _ in range(chance.randint(0, 2))]
        if chance.random() < 0.3:
            await bench.ask(IMAGE, text(f"look {number}"))
            await bench.answer(text("seen"))
        else:
            await turn_of(bench, f"t{number}", *("<r>" + "x" * size for size in sizes))
        cuts.append(bench.head)
        if chance.random() < 0.5:
            await bench.ask(text(f"and {number}"))
            await look(bench, chance, number)
            await bench.answer(text("well"))
            cuts.append(bench.head)
    source = messages(await shown(bench, bench.head, THREAD))
    covered = await bench.db.fetchval(
        "SELECT coalesce(max(through_seq), 0) FROM context.checkpoints"
    )
    chance.shuffle(cuts)
    for number, cut in enumerate(cuts):
        target = ThreadRef(
            workspace_id="wrkspc_1", session_id=f"sesn_f{number}", thread_id=f"sthr_f{number}"
        )
        body = messages(await shown(bench, await fork(bench, cut, target=target), target))
        if cut.seq >= covered:
            assert source.startswith(body), (seed, cut.seq)


async def look(bench: Bench, chance: random.Random, number: int) -> None:
    """A request that may not fit, or that the provider refuses."""
    pinned: Any = small(archive=True, window=chance.choice((12_000, WINDOW, WIDE)))
    response = await bench.service.PrepareRequest(bench.request(round=number, pinned=pinned), None)
    if response.HasField("prepared") and chance.random() < 0.4:
        again = bench.request(
            round=number,
            number=2,
            pinned=pinned,
            overflowed_snapshot_id=response.prepared.snapshot.id,
        )
        await bench.service.PrepareRequest(again, None)
