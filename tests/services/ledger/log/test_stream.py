"""Streams: every entry once and in order, from any position, whatever is lost on the way."""

import asyncio
import json as stdlib_json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from counterfoil.ledger.v1 import session_pb2

from foundation.errors import Failure, Reason
from foundation.storage import Database
from services.ledger import log_page_store, log_store
from services.ledger.log_probe import Reader, SessionHead
from services.ledger.log_writer import Draft
from services.ledger.stream import Hub
from services.ledger.stream_subscriber import Limits
from tests.services.ledger.log.support import (
    RING,
    WORKSPACE,
    append,
    create,
    delete,
    event,
    mark,
    probe,
    queued,
)

Response = session_pb2.StreamEventsResponse


class Stream:
    """A subscription under test: frames are taken one by one."""

    def __init__(self, responses: AsyncGenerator[Response]) -> None:
        self._responses = responses
        self.pending: list[session_pb2.StreamFrame] = []
        self.through = 0
        self.ended = False

    async def begin(self) -> "Stream":
        first = await self.response()
        assert not first.frames
        return self

    async def response(self) -> Response:
        async with asyncio.timeout(10):
            response = await anext(self._responses)
        assert response.position_through >= self.through
        self.through, self.ended = response.position_through, response.end
        self.pending += response.frames
        return response

    async def take(self, count: int) -> list[session_pb2.StreamFrame]:
        while len(self.pending) < count:
            await self.response()
        taken, self.pending = self.pending[:count], self.pending[count:]
        return taken

    async def positions(self, count: int) -> list[int]:
        return [frame.position for frame in await self.take(count)]

    async def close(self) -> None:
        await self._responses.aclose()


Open = Callable[..., Awaitable[Stream]]


@asynccontextmanager
async def hub_of(db: Database, **options: object) -> AsyncGenerator[Hub]:
    hub = Hub(db, RING, probe, **options)  # pyright: ignore[reportArgumentType]
    task = asyncio.create_task(hub.run())
    # Listeners are set up one after the other: the hub's is active, and its first poll is over.
    await asyncio.sleep(0)
    await db.listen("any", lambda _: None)
    await asyncio.sleep(0)
    yield hub
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def opening(hub: Hub) -> AsyncGenerator[Open]:
    async with AsyncExitStack() as stack:

        async def open_stream(
            session_id: str = "s", after: int | None = None, deltas: tuple[str, ...] = ()
        ) -> Stream:
            request = session_pb2.StreamEventsRequest(
                session_id=session_id, position_after=after, event_deltas=deltas
            )
            stream = Stream(hub.stream(WORKSPACE, request))
            stack.push_async_callback(stream.close)
            return await stream.begin()

        yield open_stream


@pytest.fixture
async def hub(db: Database) -> AsyncGenerator[Hub]:
    # No poll comes to help: what these tests see was brought by a wake-up.
    async with hub_of(db, poll_s=3600) as hub:
        yield hub


@pytest.fixture
async def subscribe(hub: Hub) -> AsyncGenerator[Open]:
    async with opening(hub) as subscribe:
        yield subscribe


async def commit(hub: Hub, db: Database, *drafts: Draft, session_id: str = "s") -> None:
    hub.wake(WORKSPACE, session_id, await append(db, session_id, *drafts))


async def test_a_stream_begins_behind_the_newest_entry_and_goes_on_live(
    hub: Hub, db: Database, subscribe: Open
) -> None:
    await create(db, "s")
    await commit(hub, db, event("old"))
    stream = await subscribe()
    assert stream.through == 1
    await commit(hub, db, event("e1"), event("e2"))
    assert await stream.positions(2) == [2, 3]
    assert stream.through == 3


async def test_a_queued_event_comes_twice_and_differs_only_in_its_time(
    hub: Hub, db: Database, subscribe: Open
) -> None:
    await create(db, "s")
    stream = await subscribe()
    await commit(hub, db, queued("q1", text="é"))
    await commit(hub, db, event("run"))
    await commit(hub, db, mark("q1", 1))
    first, _, second = await stream.take(3)
    assert (first.type, second.type) == ("user.message", "user.message")
    head, _, _ = first.json.partition(b',"processed_at":')
    assert first.json == head + b',"processed_at":null}'
    assert second.json.startswith(head + b',"processed_at":"20')
    replay = await subscribe(after=0)
    assert [frame.json for frame in await replay.take(3)][::2] == [first.json, second.json]


@pytest.mark.parametrize("with_rows", [True, False])
async def test_a_reconnect_behind_every_frame_continues_without_gap_or_double(
    hub: Hub, db: Database, subscribe: Open, with_rows: bool
) -> None:
    await create(db, "s")
    for number in range(1, 13):
        planned = await append(db, "s", event(f"e{number}"))
        hub.wake(WORKSPACE, "s", planned if with_rows else None)
    streams = [await subscribe(after=after) for after in range(13)]
    for number in range(13, 16):
        planned = await append(db, "s", event(f"e{number}"))
        hub.wake(WORKSPACE, "s", planned if with_rows else None)
    for after, stream in enumerate(streams):
        assert await stream.positions(15 - after) == list(range(after + 1, 16))


async def test_streams_that_open_while_a_log_grows_see_everything_once(
    hub: Hub, db: Database, subscribe: Open
) -> None:
    await create(db, "s")
    total = 120

    async def write() -> None:
        for number in range(total // 2):
            planned = await append(db, "s", event(f"a{number}"), event(f"b{number}"))
            hub.wake(WORKSPACE, "s", planned if number % 3 else None)

    async def follow() -> None:
        stream = await subscribe()
        start = stream.through
        assert await stream.positions(total - start) == list(range(start + 1, total + 1))

    async def follow_later(after: int) -> None:
        for _ in range(after * 20):
            await asyncio.sleep(0)
        await follow()

    await asyncio.gather(write(), *(follow_later(n) for n in range(12)))


async def test_a_list_after_the_first_response_and_the_stream_leave_no_gap(
    hub: Hub, db: Database, subscribe: Open
) -> None:
    await create(db, "s")
    writer = asyncio.create_task(_write_many(hub, db, 40))
    stream = await subscribe()
    rows = await db.fetch("SELECT position FROM ledger.log WHERE session_id = 's'")
    listed = {row["position"] for row in rows}
    await writer
    streamed = await stream.positions(40 - stream.through)
    assert listed | set(streamed) == set(range(1, 41))


async def _write_many(hub: Hub, db: Database, count: int) -> None:
    for number in range(count):
        await commit(hub, db, event(f"e{number}"))


async def test_a_long_history_is_replayed_in_pages(hub: Hub, db: Database, subscribe: Open) -> None:
    await create(db, "s")
    await append(db, "s", *(event(f"e{n}") for n in range(1201)))
    stream = await subscribe(after=0)
    assert await stream.positions(1201) == list(range(1, 1202))
    await commit(hub, db, event("live"))
    assert await stream.positions(1) == [1202]


async def test_a_commit_that_was_overtaken_on_its_way_to_the_hub_is_read(
    hub: Hub, db: Database, subscribe: Open
) -> None:
    await create(db, "s")
    stream = await subscribe()
    first = await append(db, "s", event("e1"))
    second = await append(db, "s", event("e2"))
    hub.wake(WORKSPACE, "s", second)
    hub.wake(WORKSPACE, "s", first)
    hub.wake(WORKSPACE, "s", second)
    await commit(hub, db, event("e3"))
    assert await stream.positions(3) == [1, 2, 3]


async def test_a_lost_wake_up_delays_an_entry_by_one_poll(db: Database) -> None:
    await create(db, "s")
    async with hub_of(db, poll_s=0.05) as hub, opening(hub) as subscribe:
        stream = await subscribe()
        await append(db, "s", event("e1"))
        assert await stream.positions(1) == [1]


def test_a_poll_comes_often_enough() -> None:
    from services.ledger import stream

    assert stream._POLL_S <= 1.5


async def test_processes_wake_each_other(db: Database, dsn: str) -> None:
    other_db = await Database.open(dsn, service="ledger")
    await create(db, "s")
    async with (
        hub_of(db, poll_s=3600) as one,
        hub_of(other_db, poll_s=3600) as two,
        opening(two) as subscribe,
    ):
        stream = await subscribe()
        await commit(one, db, event("e1"))
        assert await stream.positions(1) == [1]
        await commit(one, db, event("e2"))
        assert await stream.positions(1) == [2]
    await other_db.close()


async def test_one_read_serves_all_subscribers(
    hub: Hub, db: Database, subscribe: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(db, "s")
    streams = [await subscribe() for _ in range(20)]
    reads = 0
    entries = log_page_store.entries

    async def counted(*arguments: object) -> object:
        nonlocal reads
        reads += 1
        return await entries(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(log_page_store, "entries", counted)
    await append(db, "s", event("e1"))
    hub.wake(WORKSPACE, "s")
    for stream in streams:
        assert await stream.positions(1) == [1]
    assert reads == 1


async def test_rows_of_a_commit_here_are_served_without_any_read(
    hub: Hub, db: Database, subscribe: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(db, "s")
    stream = await subscribe()
    monkeypatch.delattr(log_page_store, "entries")
    await commit(hub, db, queued("q1"))
    await commit(hub, db, event("run"), mark("q1", 1), queued("q2"), mark("q2"))
    assert await stream.positions(5) == [1, 2, 3, 4, 5]


async def test_a_slow_reader_is_cut_off_and_continues_by_position(db: Database) -> None:
    await create(db, "s")
    limits = Limits(queue_frames=10)
    async with hub_of(db, poll_s=3600, limits=limits) as hub, opening(hub) as subscribe:
        slow, quick = await subscribe(), await subscribe()
        await commit(hub, db, event("e0"))
        assert await slow.positions(1) == [1]
        assert not slow.pending
        for number in range(1, 21):
            await commit(hub, db, event(f"e{number}"))
            await quick.positions(1)
        with pytest.raises(Failure) as cut:
            await slow.positions(20)
        assert cut.value.reason == Reason.ERROR_REASON_UNAVAILABLE
        again = await subscribe(after=slow.through)
        assert await again.positions(20) == list(range(2, 22))


async def test_what_overflows_during_a_replay_is_replayed_too(db: Database) -> None:
    await create(db, "s")
    await append(db, "s", *(event(f"e{n}") for n in range(600)))
    limits = Limits(queue_frames=10)
    async with hub_of(db, poll_s=3600, limits=limits) as hub, opening(hub) as subscribe:
        stream = await subscribe(after=0)
        for number in range(50):
            await commit(hub, db, event(f"late{number}"))
        assert await stream.positions(650) == list(range(1, 651))


async def test_a_single_commit_above_the_bounds_gets_through(db: Database) -> None:
    await create(db, "s")
    limits = Limits(queue_bytes=1000)
    async with hub_of(db, poll_s=3600, limits=limits) as hub, opening(hub) as subscribe:
        stream = await subscribe()
        await commit(hub, db, event("e1", text="x" * 5000))
        assert await stream.positions(1) == [1]


async def test_a_quiet_stream_says_what_it_has_delivered(db: Database) -> None:
    await create(db, "s")
    async with hub_of(db, poll_s=3600, checkpoint_s=0.02) as hub, opening(hub) as subscribe:
        stream = await subscribe()
        await commit(hub, db, event("e1"))
        assert await stream.positions(1) == [1]
        response = await stream.response()
        assert not response.frames
        assert response.position_through == 1


async def test_a_stream_ends_with_the_deletion(hub: Hub, db: Database, subscribe: Open) -> None:
    await create(db, "s")
    stream = await subscribe()
    await delete(db, "s")
    hub.wake(WORKSPACE, "s")
    (last,) = await stream.take(1)
    assert last.type == "session.deleted"
    assert stream.ended
    with pytest.raises(StopAsyncIteration):
        await stream.response()


async def test_a_deletion_reaches_streams_also_when_bodies_are_gone_already(
    hub: Hub, db: Database, subscribe: Open
) -> None:
    await create(db, "s")
    stream = await subscribe()
    await append(db, "s", event("unseen"))
    await delete(db, "s")
    async with db.commit("ledger.test") as c:
        await log_store.erase(c, WORKSPACE, "s")
    hub.wake(WORKSPACE, "s")
    (last,) = await stream.take(1)
    assert stdlib_json.loads(last.json)["type"] == "session.deleted"
    assert stream.ended


@pytest.mark.parametrize("workspace_id", [WORKSPACE, "wrkspc_2"])
async def test_deleted_unknown_and_foreign_sessions_fail_before_the_first_response(
    hub: Hub, db: Database, workspace_id: str
) -> None:
    await create(db, "s")
    if workspace_id == WORKSPACE:
        await delete(db, "s")
    request = session_pb2.StreamEventsRequest(session_id="s")
    with pytest.raises(Failure, match="not found"):
        await anext(hub.stream(workspace_id, request))
    assert not hub._feeds


async def test_a_position_that_the_log_has_not_reached_is_refused(hub: Hub, db: Database) -> None:
    await create(db, "s")
    request = session_pb2.StreamEventsRequest(session_id="s", position_after=1)
    with pytest.raises(Failure) as refused:
        await anext(hub.stream(WORKSPACE, request))
    assert refused.value.path == "position_after"


async def test_nothing_is_kept_without_subscribers(hub: Hub, db: Database) -> None:
    await create(db, "s")
    async with opening(hub) as subscribe:
        await subscribe()
        await subscribe()
        await commit(hub, db, event("e1"))
    assert not hub._feeds


async def test_the_wake_up_source_is_active_before_the_start_position_is_read(
    db: Database,
) -> None:
    """A commit between the two, told without its rows, is still delivered."""
    await create(db, "s")

    async def probe_then_commit(reader: Reader, workspace: str, session: str) -> SessionHead | None:
        found = await probe(reader, workspace, session)
        await append(db, "s", event("between"))
        hub.wake(WORKSPACE, "s")
        return found

    hub = Hub(db, RING, probe_then_commit, poll_s=3600)
    request = session_pb2.StreamEventsRequest(session_id="s")
    stream = await Stream(hub.stream(WORKSPACE, request)).begin()
    assert await stream.positions(1) == [1]
    await stream.close()


async def test_a_broken_body_ends_the_stream_as_corrupt(
    hub: Hub, db: Database, subscribe: Open
) -> None:
    await create(db, "s")
    stream = await subscribe()
    await append(db, "s", event("e1"))
    async with db.commit("ledger.test") as c:
        await c.execute("UPDATE ledger.log SET sealed = '\\x00'")
    hub.wake(WORKSPACE, "s")
    with pytest.raises(Failure) as broken:
        await stream.response()
    assert broken.value.reason == Reason.ERROR_REASON_CORRUPT


async def test_a_stopping_hub_ends_its_streams(db: Database) -> None:
    await create(db, "s")
    async with AsyncExitStack() as stack:
        async with hub_of(db, poll_s=3600) as hub:
            stream = await (await stack.enter_async_context(opening(hub)))()
        with pytest.raises(Failure) as stopped:
            await stream.response()
        assert stopped.value.reason == Reason.ERROR_REASON_UNAVAILABLE
