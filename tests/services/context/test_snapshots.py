"""Requests and their snapshots over PostgreSQL."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable
from typing import Any

import pytest
from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.transcript.v1.transcript_pb2 import ListEntriesRequest
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Head, ThreadRef

from foundation import failpoints
from foundation.errors import Failure
from foundation.storage.errors import SealBroken
from foundation.storage.testing import assert_schema_matches, assert_sql_prepares
from services.context import schema, store
from services.context.cache import Messages, Warm, WarmCache
from services.context.recipe import addresses_of
from services.transcript import store as transcript_store
from tests.services.context.conftest import OTHER, PROMPT, THREAD, Bench, runtime
from tests.services.context.histories import INPUT, WITHHELD, projection, text, use


async def refused(call: Awaitable[Any]) -> Failure:
    with pytest.raises(Failure) as failure:
        await call
    return failure.value


async def test_schema_is_what_the_migrations_make(bench: Bench) -> None:
    await assert_schema_matches("context", schema.metadata, bench.dsn)


async def test_every_statement_prepares(bench: Bench) -> None:
    assert await assert_sql_prepares(store, bench.dsn) == 20


async def test_the_next_request_begins_with_this_ones_messages(bench: Bench) -> None:
    await bench.ask(text("one"))
    first = (await bench.prepare()).body
    await bench.answer(text("I will"), use("a"), uses=(1,))
    await bench.results(_1=projection("done"))
    second = (await bench.prepare(round=1)).body
    assert second.startswith(first.removesuffix(b'],"stream":true}'))
    members = json.loads(second)
    assert list(members) == ["model", "max_tokens", "system", "tools", "messages", "stream"]
    assert [m["role"] for m in members["messages"]] == ["user", "assistant", "user"]


async def test_a_snapshot_describes_its_request(bench: Bench) -> None:
    await bench.ask()
    prepared = await bench.prepare()
    snapshot = prepared.snapshot
    assert snapshot.request_digest == hashlib.sha256(prepared.body).digest()
    assert snapshot.request_bytes == len(prepared.body)
    assert snapshot.input_tokens_estimate == -(-len(prepared.body) // 3)
    assert snapshot.transcript_head == bench.head
    assert await bench.listed() == [snapshot]


async def test_a_repeat_returns_the_stored_snapshot_from_any_process(bench: Bench) -> None:
    await bench.ask()
    first = await bench.prepare()
    assert await bench.prepare() == first
    again = await bench.another().PrepareRequest(bench.request(), None)
    assert again.prepared == first
    assert len(await bench.listed()) == 1


async def test_a_repeat_with_other_arguments_changes_nothing(bench: Bench) -> None:
    await bench.ask()
    first = await bench.prepare()
    assert await bench.prepare(stream=False, pinned=runtime(system="other")) == first


async def test_an_attempt_is_never_moved_to_another_head(bench: Bench) -> None:
    await bench.ask()
    first = await bench.prepare()
    await bench.answer(text("x"))
    await bench.ask()
    failure = await refused(bench.prepare())
    assert failure.reason == reasons.ERROR_REASON_HEAD_MISMATCH
    assert await bench.listed() == [first.snapshot]


async def test_a_head_that_moved_is_refused(bench: Bench) -> None:
    await bench.ask()
    old = bench.head
    await bench.answer(text("x"))
    await bench.ask()
    ahead = Head(seq=9, digest=bytes(32))
    forged = Head(seq=bench.head.seq, digest=bytes(32))
    for head in (old, ahead, forged, Head()):
        failure = await refused(bench.prepare(head=head))
        assert failure.reason == reasons.ERROR_REASON_HEAD_MISMATCH
        await bench.prepare(round=head.seq, number=7)
        failure = await refused(bench.prepare(head=head))
        assert failure.reason == reasons.ERROR_REASON_HEAD_MISMATCH


async def test_an_open_call_gives_no_request(bench: Bench) -> None:
    await bench.ask()
    await bench.prepare()
    await bench.answer(use("a"), uses=(0,))
    for _ in range(2):
        failure = await refused(bench.prepare(round=1))
        assert failure.reason == reasons.ERROR_REASON_WRONG_STATE
    await bench.results(_0=projection("x"))
    assert (await bench.prepare(round=1)).body


async def test_rebuild_returns_the_exact_bytes_of_every_request(bench: Bench) -> None:
    bodies: dict[str, bytes] = {}
    for round in range(4):
        if round == 0:
            await bench.ask(b'{"type":"text", "text":"\\u0000 \xf0\x9f\x8e\x89","n":1.10}')
        else:
            await bench.answer(b'{"type":"thinking","thinking":"","n":1e400}', use("a"), uses=(1,))
            await bench.results(_1=projection("a\nb", is_error=round == 2))
        prepared = await bench.prepare(round=round, stream=round != 3)
        bodies[prepared.snapshot.id] = prepared.body
    for id, body in bodies.items():
        assert await bench.rebuild(id) == body
    assert await bench.db.fetchval("SELECT count(*) FROM context.access") == 4


async def test_rebuild_of_a_foreign_or_unknown_snapshot_is_not_found(bench: Bench) -> None:
    await bench.ask()
    id = (await bench.prepare()).snapshot.id
    foreign = ThreadRef(workspace_id="wrkspc_2", session_id="sesn_1", thread_id="sthr_1")
    for thread, asked in ((THREAD, "snap_x"), (OTHER, id), (foreign, id)):
        failure = await refused(bench.rebuild(asked, thread))
        assert failure.reason == reasons.ERROR_REASON_NOT_FOUND
    assert await bench.listed(foreign) == []


async def test_rebuild_refuses_what_was_changed(bench: Bench) -> None:
    await bench.ask()
    await bench.answer(use("a"), uses=(0,))
    await bench.results(_0=projection("x"))
    id = (await bench.prepare()).snapshot.id
    kept = bench.journal.projections["op_2_0"]
    bench.journal.projections["op_2_0"] = projection("y")
    assert (await refused(bench.rebuild(id))).reason == reasons.ERROR_REASON_CORRUPT
    bench.journal.projections["op_2_0"] = kept
    assert await bench.rebuild(id)
    await bench.db.commit_one("test", "UPDATE context.snapshots SET round = 5")
    with pytest.raises(SealBroken):
        await bench.rebuild(id)
    await bench.db.commit_one("test", "UPDATE context.snapshots SET round = 0")
    await bench.db.commit_one("test", "DELETE FROM context.parts")
    assert (await refused(bench.rebuild(id))).reason == reasons.ERROR_REASON_CORRUPT


async def test_a_warm_round_reads_only_what_is_new(bench: Bench) -> None:
    await bench.ask()
    await bench.prepare()
    for round in range(1, 6):
        await bench.answer(use("a"), uses=(0,))
        await bench.results(_0=projection(str(round)))
        bench.transcript.entries_read = 0
        bench.journal.asked.clear()
        prepared = await bench.prepare(round=round)
        assert bench.transcript.entries_read == 2
        assert len(bench.journal.asked) == 1
        cold = await bench.another().PrepareRequest(bench.request(round=round, number=2), None)
        assert cold.prepared.body == prepared.body


@pytest.mark.parametrize("told", ["1", "something else"])
async def test_results_that_the_caller_brings_are_read_only_if_they_are_not_the_recorded_ones(
    bench: Bench, told: str
) -> None:
    await bench.ask()
    await bench.prepare()
    await bench.answer(use("a"), use("b"), uses=(0, 1))
    await bench.results(_0=projection("1"), _1=projection("2"))
    request = bench.request(round=1)
    for index, body in enumerate((projection(told).body, projection("2").body)):
        request.known_results.add(operation_id=f"op_2_{index}", projection=body)
    prepared = (await bench.service.PrepareRequest(request, None)).prepared
    assert bool(bench.journal.asked) == (told != "1")
    cold = await bench.another().PrepareRequest(bench.request(round=1, number=2), None)
    assert cold.prepared.body == prepared.body


async def test_a_withheld_turn_leaves_warm_and_cold_requests_equal(bench: Bench) -> None:
    await bench.ask(text("kept"))
    await bench.answer(text("yes"))
    await bench.ask(text("too large"))
    await bench.prepare()
    await bench.append(WITHHELD, skipped_entry_ids=["tent_3"])
    await bench.ask(text("next"))
    warm = await bench.prepare(round=1)
    cold = await bench.another(WarmCache(0)).PrepareRequest(bench.request(round=2), None)
    assert warm.body == cold.prepared.body
    assert b"too large" not in warm.body


async def test_requests_prepared_at_once_for_one_thread_are_equal(bench: Bench) -> None:
    await bench.ask()
    await bench.prepare()
    await bench.answer(text("x"))
    await bench.ask()
    prepared = await asyncio.gather(*(bench.prepare(round=1) for _ in range(5)))
    assert all(one == prepared[0] for one in prepared)
    assert len(await bench.listed()) == 2


async def test_a_request_that_leaves_room_for_its_answer_is_sent_and_one_token_more_is_not(
    bench: Bench,
) -> None:
    limit = 200_000 - 8_192
    await bench.ask(text("a"))
    room = limit * 3 - len((await bench.prepare()).body)
    await bench.answer(text("b"))
    await bench.ask(text("c"))
    room = limit * 3 - len((await bench.prepare(round=1)).body)
    await bench.answer(text("d"))
    empty = len(b',{"role":"assistant","content":[]},{"role":"user","content":[]}')
    room -= empty + len(text("d")) + len(text(""))
    await bench.ask(text("e" * room))
    prepared = await bench.prepare(round=2)
    assert prepared.snapshot.input_tokens_estimate == limit
    snapshots = await bench.listed()
    pinned = runtime(system=PROMPT + "!")
    response = await bench.service.PrepareRequest(bench.request(round=3, pinned=pinned), None)
    assert response.refused == pb.Refusal(
        input_tokens_estimate=limit + 1,
        input_tokens_limit=limit,
        window_tokens=200_000,
        reason=pb.REFUSAL_REASON_INPUT_TOO_LARGE,
    )
    assert await bench.listed() == snapshots


async def test_a_lower_epoch_writes_nothing(bench: Bench) -> None:
    await bench.ask()
    for warm in (False, True):
        await bench.fence(5 + warm)
        failure = await refused(bench.prepare(epoch=4))
        assert failure.reason == reasons.ERROR_REASON_FENCED
        assert failure.metadata["epoch_max"] == str(5 + warm)
        await bench.prepare(epoch=5 + warm)
    failure = await refused(bench.fence(5))
    assert failure.reason == reasons.ERROR_REASON_FENCED
    assert [one.attempt.epoch for one in await bench.listed()] == [5, 6]


async def test_preparing_raises_the_epoch(bench: Bench) -> None:
    await bench.ask()
    await bench.prepare(epoch=3)
    assert (await refused(bench.prepare(epoch=2))).reason == reasons.ERROR_REASON_FENCED


async def test_a_fence_returns_the_turns_snapshots_oldest_first(bench: Bench) -> None:
    await bench.ask()
    made = [
        (await bench.prepare(round=round, number=number)).snapshot
        for round, number in ((1, 1), (0, 2), (0, 1))
    ]
    await bench.prepare(turn_id="turn_2")
    for _ in range(2):
        assert list((await bench.fence(2)).snapshots) == made
    assert len(await bench.listed()) == 4


async def test_a_deleted_thread_keeps_nothing_and_takes_nothing(bench: Bench) -> None:
    await bench.ask()
    await bench.prepare()
    for _ in range(2):
        await bench.tombstone()
        assert await bench.listed() == []
        for call in (bench.prepare(epoch=9), bench.fence(2**62)):
            assert (await refused(call)).reason == reasons.ERROR_REASON_DELETED
    assert await bench.db.fetchval("SELECT count(*) FROM context.parts") == 0


async def test_a_part_lives_as_long_as_a_thread_that_uses_it(bench: Bench) -> None:
    await bench.ask()
    await bench.append(INPUT, OTHER, blocks=[text("hi")])
    stub = bench.transcript
    listed = await stub.ListEntries(_list(OTHER))
    first = await bench.prepare()
    other = await bench.prepare(thread=OTHER, head=listed.head)
    assert await bench.db.fetchval("SELECT count(*) FROM context.parts") == 2
    await bench.tombstone()
    assert await bench.rebuild(other.snapshot.id, OTHER) == other.body == first.body
    await bench.tombstone(OTHER)
    assert await bench.db.fetchval("SELECT count(*) FROM context.parts") == 0


def _list(thread: ThreadRef) -> ListEntriesRequest:
    return ListEntriesRequest(thread=thread)


async def test_a_deletion_never_takes_a_part_that_another_thread_is_about_to_use(
    bench: Bench,
) -> None:
    await bench.ask()
    await bench.append(INPUT, OTHER, blocks=[text("hi")])
    head = (await bench.transcript.ListEntries(_list(OTHER))).head
    await bench.prepare()
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def pause(name: str) -> None:
        if name == "test.slow.before":
            reached.set()
            await go_on.wait()

    async def prepare_slowly() -> pb.PreparedRequest:
        async with bench.db.joint("test.slow"):
            return await bench.prepare(thread=OTHER, head=head)

    failpoints.install(pause)
    preparing = asyncio.create_task(prepare_slowly())
    await reached.wait()  # the other thread's use is written, not committed
    deleting = asyncio.create_task(bench.tombstone())
    while not await bench.db.fetchval(_WAITING):  # noqa: ASYNC110
        await asyncio.sleep(0)
    go_on.set()
    other = await preparing
    await deleting
    assert await bench.rebuild(other.snapshot.id, OTHER) == other.body


_WAITING = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"


async def test_parts_that_were_lost_are_stored_again(bench: Bench) -> None:
    await bench.ask()
    await bench.prepare()
    await bench.db.commit_one("test", "DELETE FROM context.part_uses")
    await bench.db.commit_one("test", "DELETE FROM context.parts")
    prepared = await bench.prepare(number=2)
    assert await bench.rebuild(prepared.snapshot.id) == prepared.body


async def test_no_row_holds_a_request_or_anything_readable(bench: Bench) -> None:
    secret = "what the customer said " * 10
    await bench.ask(text(secret))
    prepared = await bench.prepare()
    await bench.rebuild(prepared.snapshot.id)
    for table in schema.metadata.sorted_tables:
        for row in await bench.db.fetch(f"SELECT * FROM context.{table.name}"):
            for value in row.values():
                stored = value if isinstance(value, bytes) else str(value).encode()
                assert len(stored) < len(secret) or table.name == "parts"
                assert secret.encode() not in stored
                assert PROMPT.encode() not in stored
                assert prepared.snapshot.request_digest not in stored


async def test_snapshots_grow_at_most_twice_as_fast_as_the_transcript(bench: Bench) -> None:
    async def size(service: str) -> int:
        return await bench.db.fetchval(
            "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = $1 AND c.relkind = 'r'",
            service,
        )

    await bench.ask()
    await bench.prepare()
    before = {name: await size(name) for name in ("context", "transcript")}
    for round in range(1, 101):
        await bench.answer(use("a"), uses=(0,))
        await bench.results(_0=projection("ok"))
        await bench.prepare(round=round)
    grown = {name: await size(name) - before[name] for name in before}
    assert grown["context"] <= 2 * grown["transcript"], grown


def test_the_cache_drops_the_least_recently_used_threads() -> None:
    def warm(size: int) -> Warm:
        return Warm(messages=Messages(bytes(size)))

    cache = WarmCache(bytes_max=100)
    a, b, c = (("w", "s", name) for name in "abc")
    cache.put(a, warm(40))
    cache.put(b, warm(40))
    found = cache.take(a)
    assert found is not None
    assert cache.take(a) is None
    cache.put(a, found)
    cache.put(c, warm(40))
    assert cache.take(b) is None
    assert cache.take(a) is found
    assert cache.take(c) is not None
    cache.put(a, warm(101))
    assert cache.take(a) is None


def test_what_stands_around_the_messages_is_made_anew_for_another_runtime_only() -> None:
    warm = Warm()
    frame = warm.frame(runtime())
    addresses = warm.stored = addresses_of(b"key", *frame.parts)
    assert warm.frame(runtime()) is frame
    assert warm.stored == addresses
    assert warm.frame(runtime(system="other")).head != frame.head
    assert warm.stored == ()
    assert warm.frame(runtime()) == frame


async def test_what_was_deleted_meanwhile_does_not_stay_warm(bench: Bench) -> None:
    """A request was on its way when the thread was deleted."""
    await bench.ask()
    cache = WarmCache()
    service = bench.another(cache)

    async def delete(name: str) -> None:
        if name == "context.prepare.after":
            failpoints.install(None)
            await service.Tombstone(pb.TombstoneRequest(thread=THREAD), None)

    failpoints.install(delete)
    try:
        await service.PrepareRequest(bench.request(), None)
    finally:
        failpoints.install(None)
    assert cache.take((THREAD.workspace_id, THREAD.session_id, THREAD.thread_id)) is None
    with cache.loan(("w", "s", "t")) as loan:
        loan.back = Warm(messages=Messages(b"x"))
    assert cache.take(("w", "s", "t")) is not None


async def test_history_comes_in_pages_that_fit_in_a_message(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        await bench.ask(text(f"{number} " + "x" * 1000))
    whole = await bench.prepare()
    bench.transcript.pages = 0
    monkeypatch.setattr(transcript_store, "PAGE_BYTES", 2000)
    cold = await bench.another(WarmCache(0)).PrepareRequest(bench.request(number=2), None)
    assert cold.prepared.body == whole.body
    assert bench.transcript.pages == 3


async def test_a_cold_start_is_exact_wherever_its_pages_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.ask(text("kept"))
    await bench.answer(text("thinks"), use("toolu_1"), uses=(1,))
    await bench.results(_1=projection("result"))
    await bench.answer(text("yes"))
    warm = [await bench.prepare()]
    await bench.ask(text("too large"))
    await bench.answer(use("toolu_2"), uses=(0,))
    await bench.append(WITHHELD, skipped_entry_ids=["tent_5", "tent_6"])
    await bench.ask(text("next"))
    warm.append(await bench.prepare(round=1))
    heads = [prepared.snapshot.transcript_head for prepared in warm]
    monkeypatch.setattr(transcript_store, "PAGE_BYTES", 1)
    assert [await bench.rebuild(prepared.snapshot.id) for prepared in warm] == [
        prepared.body for prepared in warm
    ]
    request = bench.request(round=2, head=heads[1])
    cold = await bench.another(WarmCache(0)).PrepareRequest(request, None)
    assert cold.prepared.body == warm[1].body
    assert b"too large" not in cold.prepared.body


async def test_results_that_do_not_fit_in_one_message_are_read_in_parts(bench: Bench) -> None:
    await bench.ask()
    uses = tuple(range(5))
    await bench.answer(*(use(f"toolu_{index}") for index in uses), uses=uses)
    await bench.results(**{f"_{index}": projection(f"result {index}") for index in uses})
    whole = await bench.prepare(round=1)
    bench.journal.operations_max = 1
    cold = await bench.another(WarmCache(0)).PrepareRequest(bench.request(round=1, number=2), None)
    assert cold.prepared.body == whole.body
