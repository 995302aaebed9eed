"""A kept prefix saves reading, and decides nothing."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.types.v1.reference_pb2 import Fence

from foundation.storage import SealRing
from foundation.storage.errors import Unavailable
from services.context import keeping, materializer, prefixes, store
from services.context.cache import Messages, Warm
from services.context.prefixes import Prefixes
from services.context.recipe import ThreadKey, thread_key
from services.context.service import ContextServicer
from tests.services.context.conftest import OTHER, THREAD, Bench
from tests.services.context.histories import WITHHELD, projection, text, use

KEY = thread_key(THREAD)
_WRONG = b'{"role":"user","content":[]}'


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "ENTRIES_MIN", 4)
    monkeypatch.setattr(prefixes, "ENTRIES_MIN", 4)


async def talk(bench: Bench) -> None:
    """Six entries, with a call and its result."""
    await bench.ask(text("one"))
    await bench.answer(text("I will"), use("a"), uses=(1,))
    await bench.results(_1=projection("done"))
    await bench.answer(text("well"))
    await bench.ask(text("two"))
    await bench.answer(text("fine"))


async def settled() -> None:
    """Returns when nothing is being kept."""
    keeping = [task for task in asyncio.all_tasks() if task.get_name() == "context-prefix"]
    await asyncio.gather(*keeping)


async def kept(bench: Bench) -> list[int]:
    """Through where the thread's prefix reaches."""
    await settled()
    rows = await bench.db.fetch("SELECT seq FROM context.prefixes WHERE thread_id = $1", KEY[2])
    return [row["seq"] for row in rows]


async def started(bench: Bench, number: int = 9) -> tuple[bytes, int, ContextServicer]:
    """A new process: what it makes of the thread, and how many entries it read for that."""
    before = bench.transcript.entries_read
    service = bench.another()
    response = await service.PrepareRequest(bench.request(number=number), None)
    return response.prepared.body, bench.transcript.entries_read - before, service


def _warm(seq: int, digest: bytes, messages: bytes) -> Warm:
    warm = Warm(seq, digest, Messages(messages))
    warm.kept_seq = 0
    return warm


async def put(
    bench: Bench,
    seq: int,
    digest: bytes,
    messages: bytes,
    *,
    epoch: int = 1,
    key: ThreadKey = KEY,
) -> None:
    """Keep what is properly sealed, right or wrong."""
    Prefixes(bench.db, bench.ring).keep_soon(key, epoch, _warm(seq, digest, messages))
    await settled()


async def test_a_new_process_reads_what_is_kept_and_only_the_entries_behind_it(
    bench: Bench,
) -> None:
    await talk(bench)
    await bench.prepare()
    assert await kept(bench) == [6]
    await bench.ask(text("three"))
    warm = await bench.prepare(round=1)
    body, entries, service = await started(bench)
    assert (body, entries) == (warm.body, 1)
    await bench.answer(text("and"))
    await bench.ask(text("four"))
    bench.service = service
    assert (await bench.prepare(round=2)).body == (await started(bench, 10))[0]


def _set(column: str, value: str) -> Callable[[Bench], Awaitable[None]]:
    async def change(bench: Bench) -> None:
        await bench.db.commit_one("test", f"UPDATE context.prefixes SET {column} = {value}")

    return change


async def _of_another_thread(bench: Bench) -> None:
    theirs = thread_key(OTHER)
    await bench.service.Fence(pb.FenceRequest(fence=Fence(thread=OTHER, epoch=1)), None)
    await put(bench, bench.head.seq, bench.head.digest, _WRONG, key=theirs)
    await bench.db.commit_one("test", "DELETE FROM context.prefixes WHERE thread_id = $1", KEY[2])
    move = "UPDATE context.prefixes SET session_id = $2, thread_id = $3 WHERE thread_id = $1"
    await bench.db.commit_one("test", f"{move} RETURNING 1", theirs[2], *KEY[1:])


async def _of_unknown_keys(bench: Bench) -> None:
    foreign = Prefixes(bench.db, SealRing("b", {"b": bytes(range(32))}))
    foreign.keep_soon(KEY, 1, _warm(bench.head.seq, bench.head.digest, _WRONG))
    await settled()


async def _of_another_history(bench: Bench) -> None:
    await put(bench, bench.head.seq, bytes(32), _WRONG)


async def _of_an_older_history(bench: Bench) -> None:
    await put(bench, bench.head.seq - 1, bytes(32), _WRONG)


async def _beyond_the_head(bench: Bench) -> None:
    await put(bench, bench.head.seq + 9, bytes(32), _WRONG)


@pytest.mark.parametrize(
    "harm",
    [
        _set("seq", "seq - 1"),
        _set("digest", "sha256('x')"),
        _set("version", "version + 1"),
        _set("version", "version - 1"),
        _set("messages_sealed", "set_byte(messages_sealed, 40, 0)"),
        _set("messages_sealed", "''"),
        _of_another_thread,
        _of_unknown_keys,
        _of_another_history,
        _of_an_older_history,
        _beyond_the_head,
    ],
)
async def test_what_does_not_belong_there_is_not_used_and_is_replaced(
    bench: Bench, harm: Callable[[Bench], Awaitable[None]]
) -> None:
    await talk(bench)
    body = (await bench.prepare()).body
    assert await kept(bench) == [6]
    await harm(bench)
    found, entries, _ = await started(bench)
    assert found == body
    assert entries >= 6
    assert await kept(bench) == [6]
    assert (await started(bench, 10))[:2] == (body, 0)


async def test_an_entry_that_skips_others_leaves_nothing_of_them(bench: Bench) -> None:
    await talk(bench)
    await bench.prepare()
    assert await kept(bench) == [6]
    await bench.append(WITHHELD, skipped_entry_ids=["tent_5", "tent_6"])
    await bench.ask(text("three"))
    body, _, _ = await started(bench)
    assert b"two" not in body
    assert b"three" in body
    assert await kept(bench) == [8]
    assert (await started(bench, 10))[:2] == (body, 0)


async def test_what_proves_something_never_reads_it(bench: Bench) -> None:
    await talk(bench)
    prepared = await bench.prepare()
    await put(bench, bench.head.seq, bench.head.digest, _WRONG)
    assert await bench.rebuild(prepared.snapshot.id) == prepared.body


async def test_nobody_waits_for_it_or_fails_with_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise Unavailable("no database")

    monkeypatch.setattr(store, "keep_prefix", fail)
    await talk(bench)
    assert (await bench.prepare()).body
    assert await kept(bench) == []


async def test_a_process_that_was_fenced_keeps_nothing(bench: Bench) -> None:
    await talk(bench)
    await bench.fence(5)
    await put(bench, bench.head.seq, bench.head.digest, b"{}", epoch=4)
    assert await kept(bench) == []


async def test_a_deletion_takes_it_along_and_lets_none_follow(bench: Bench) -> None:
    await talk(bench)
    await bench.prepare()
    assert await kept(bench) == [6]
    await bench.tombstone()
    assert await kept(bench) == []
    await put(bench, bench.head.seq, bench.head.digest, b"{}")
    assert await kept(bench) == []


async def test_a_deletion_takes_along_what_is_being_kept(bench: Bench) -> None:
    await talk(bench)
    await bench.prepare()
    await kept(bench)
    row = (bench.head.seq, bench.head.digest, materializer.VERSION, 0, b"sealed")
    async with bench.db.commit("test") as connection:
        await connection.execute(store.KEEP_PREFIX, *KEY, 1, *row)
        # Requests of the thread go on meanwhile.
        assert (await bench.prepare(number=2)).body
        deleting = asyncio.create_task(bench.tombstone())
        while not await bench.db.fetchval(_WAITING):  # noqa: ASYNC110
            await asyncio.sleep(0)
    await deleting
    assert await kept(bench) == []


_WAITING = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"
