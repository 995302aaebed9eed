"""The history as pages: its order, and cursors that never skip."""

import asyncio
import itertools
import json as stdlib_json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from counterfoil.ledger.v1 import session_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foundation.errors import Failure
from foundation.storage import Database, SealRing
from services.ledger import log_page_store, log_types
from services.ledger.log_list import History
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

ASC, DESC = session_pb2.LIST_ORDER_ASC, session_pb2.LIST_ORDER_DESC
Order = session_pb2.ListOrder.ValueType


async def page(
    db: Database,
    *,
    session_id: str = "s",
    order: Order = ASC,
    limit: int | None = None,
    cursor: str | None = None,
    types: Sequence[str] = (),
    workspace_id: str = WORKSPACE,
    page_bytes: int = 2**20,
    times: dict[str, datetime] | None = None,
) -> session_pb2.ListEventsResponse:
    request = session_pb2.ListEventsRequest(
        session_id=session_id, order=order, limit=limit, page=cursor, types=types
    )
    for name, time in (times or {}).items():
        getattr(request, f"created_at_{name}").FromDatetime(time)
    history = History(db, RING, probe)
    return await history.list_events(workspace_id, request, page_bytes=page_bytes)


def ids(response: session_pb2.ListEventsResponse) -> list[str]:
    return [stdlib_json.loads(item)["id"] for item in response.data]


async def whole(db: Database, **options: object) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        response = await page(db, cursor=cursor, **options)  # pyright: ignore[reportArgumentType]
        found += ids(response)
        if not response.HasField("next_page"):
            return found
        assert response.data
        cursor = response.next_page


async def write_history(db: Database) -> None:
    await create(db, "s")
    await append(db, "s", queued("q1"), queued("q2"), event("run"), mark("q1"))
    await append(db, "s", event("m1"), queued("q3"), event("m2"), mark("q3"), queued("q4"))


ORDERED = ["run", "q1", "m1", "m2", "q3", "q2", "q4"]


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8, None])
async def test_marked_events_stand_where_they_took_effect_and_queued_ones_last(
    db: Database, limit: int | None
) -> None:
    await write_history(db)
    assert await whole(db, limit=limit) == ORDERED
    assert await whole(db, limit=limit, order=DESC) == ORDERED[::-1]


async def test_a_full_last_page_has_no_next_page(db: Database) -> None:
    await write_history(db)
    assert not (await page(db, limit=7)).HasField("next_page")
    assert not (await page(db, limit=7, order=DESC)).HasField("next_page")


async def test_an_event_is_the_stored_json_with_its_time_as_last_member(db: Database) -> None:
    await create(db, "s")
    await append(db, "s", event("e1"), queued("q1"))
    data = (await page(db)).data
    assert data[0].startswith(b'{"id":"e1","type":"agent.message","processed_at":"20')
    assert data[0].endswith(b'Z"}')
    assert data[1] == b'{"id":"q1","type":"user.message","processed_at":null}'


@pytest.mark.parametrize("order", [ASC, DESC])
async def test_types_filter_pages_like_the_whole_list(db: Database, order: Order) -> None:
    await write_history(db)
    wanted = ["q1", "q3", "q2", "q4"] if order == ASC else ["q4", "q2", "q3", "q1"]
    for limit in (1, 2, 4, 5):
        found = await whole(db, limit=limit, order=order, types=["user.message", "session.error"])
        assert found == wanted


NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


async def write_hours(db: Database) -> None:
    """Events at 0, 1, 1, 2, … 9 seconds behind noon; `q` is marked at 5, `w` waits."""
    await create(db, "s")
    await append(db, "s", event("e0"), queued("q"), now=at(0))
    await append(db, "s", event("e1"), event("e1b"), now=at(1))
    for second in range(2, 10):
        marks = [mark("q", 2)] if second == 5 else []
        await append(db, "s", event(f"e{second}"), *marks, now=at(second + 0.000_4))
    await append(db, "s", queued("w"), now=at(9))


@pytest.mark.parametrize("order", [ASC, DESC])
@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        ({"gte": 1}, ["e1", "e1b", "e2", "e3", "e4", "e5", "q", "e6", "e7", "e8", "e9"]),
        ({"gt": 1}, ["e2", "e3", "e4", "e5", "q", "e6", "e7", "e8", "e9"]),
        ({"lte": 1}, ["e0", "e1", "e1b"]),
        ({"lt": 1}, ["e0"]),
        # What a client was shown, in milliseconds, finds the event itself.
        ({"gte": 5, "lte": 5}, ["e5", "q"]),
        ({"gt": 5, "lt": 7}, ["e6"]),
        ({"gt": 2, "gte": 4, "lt": 9, "lte": 5}, ["e4", "e5", "q"]),
        ({"gt": 9}, []),
        ({"lt": 0}, []),
        ({"gt": 6, "lt": 3}, []),
    ],
)
async def test_times_are_compared_with_what_events_show(
    db: Database, order: Order, limit: int, times: dict[str, int], wanted: list[str]
) -> None:
    await write_hours(db)
    bounds = {name: at(seconds) for name, seconds in times.items()}
    expected = wanted if order == ASC else wanted[::-1]
    assert await whole(db, order=order, limit=limit, times=bounds) == expected
    messages = [id for id in expected if id != "q"]
    typed = await whole(db, order=order, limit=limit, times=bounds, types=["agent.message"])
    assert typed == messages


async def test_a_time_filter_that_excludes_the_cursors_place_is_refused(db: Database) -> None:
    await write_hours(db)
    cursor = (await page(db, limit=4)).next_page
    assert ids(await page(db, cursor=cursor, limit=2, times={"gte": at(2)})) == ["e3", "e4"]
    tail = (await page(db, limit=1, order=DESC)).next_page
    for order, place, bounds in [
        (ASC, cursor, {"gt": at(2)}),
        (ASC, cursor, {"lt": at(2)}),
        (DESC, tail, {"gt": at(2)}),
    ]:
        with pytest.raises(Failure, match="excludes the place") as refused:
            await page(db, cursor=place, order=order, times=bounds)
        assert refused.value.path == "page"


async def test_every_type_of_the_reference_contract_is_a_known_filter(db: Database) -> None:
    await write_history(db)
    assert len(log_types.FILTERS) == 41
    assert len(ids(await page(db, types=sorted(log_types.FILTERS)))) == 7


@pytest.mark.parametrize("unknown", ["session.deleted", "user.nothing"])
async def test_an_unknown_type_is_refused_by_its_path(db: Database, unknown: str) -> None:
    await create(db, "s")
    with pytest.raises(Failure) as refused:
        await page(db, types=["user.message", unknown])
    assert refused.value.path == "types.1"


async def cursor_of(db: Database, **options: object) -> str:
    response = await page(db, limit=1, **options)  # pyright: ignore[reportArgumentType]
    assert response.HasField("next_page")
    return response.next_page


async def test_a_cursor_belongs_to_its_session_and_order(db: Database) -> None:
    await write_history(db)
    await create(db, "other")
    cursor = await cursor_of(db)
    for options in ({"session_id": "other"}, {"order": DESC}):
        with pytest.raises(Failure) as refused:
            await page(db, cursor=cursor, **options)  # pyright: ignore[reportArgumentType]
        assert refused.value.path == "page"


async def test_limit_and_types_may_change_between_pages(db: Database) -> None:
    await write_history(db)
    cursor = await cursor_of(db)
    assert ids(await page(db, cursor=cursor, types=["user.message"])) == ["q1", "q3", "q2", "q4"]


async def test_a_changed_or_foreign_cursor_is_refused(db: Database) -> None:
    await write_history(db)
    cursor = await cursor_of(db)
    flipped = ("A" if cursor[40] != "A" else "B").join((cursor[:40], cursor[41:]))
    for broken in (flipped, cursor[:-2], "", "!", "é", "AQ", cursor + "AAAA"):
        with pytest.raises(Failure) as refused:
            await page(db, cursor=broken)
        assert refused.value.path == "page"


async def test_a_cursor_outlives_a_key_rotation(db: Database) -> None:
    await write_history(db)
    cursor = await cursor_of(db)
    rotated = SealRing("k2", {"k1": bytes(32), "k2": b"2" * 32})
    request = session_pb2.ListEventsRequest(session_id="s", page=cursor, order=ASC)
    response = await History(db, rotated, probe).list_events(WORKSPACE, request)
    assert ids(response) == ORDERED[1:]


async def test_pages_end_early_rather_than_grow_without_bound(db: Database) -> None:
    await create(db, "s")
    await append(db, "s", *(event(f"e{n}", text="x" * 1000) for n in range(9)), queued("q"))
    first = await page(db, page_bytes=3000)
    assert ids(first) == ["e0", "e1", "e2"]
    wanted = [f"e{n}" for n in range(9)] + ["q"]
    assert await whole(db, page_bytes=3000) == wanted
    assert await whole(db, page_bytes=1) == wanted
    assert await whole(db, page_bytes=1, order=DESC) == wanted[::-1]
    assert await whole(db, page_bytes=1, limit=2) == wanted


async def test_unknown_foreign_and_deleted_sessions_have_no_history(db: Database) -> None:
    await create(db, "s")
    for options in ({"session_id": "none"}, {"workspace_id": "wrkspc_2"}):
        with pytest.raises(Failure, match="not found"):
            await page(db, **options)  # pyright: ignore[reportArgumentType]
    await delete(db, "s")
    with pytest.raises(Failure, match="not found"):
        await page(db)


class Model:
    """What a list must contain: the order in which events took effect, and who waits."""

    def __init__(self) -> None:
        self.waiting: dict[str, int] = {}
        self.known: list[str] = []
        self.position = 0


STEPS = st.lists(
    st.tuples(st.sampled_from(["event", "queue", "mark", "page"]), st.integers(0, 3)), max_size=25
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS, limit=st.integers(1, 4), descending=st.booleans())
def test_no_event_is_ever_skipped_whatever_is_marked_between_pages(
    runner: asyncio.Runner,
    shared_db: Database,
    steps: list[tuple[str, int]],
    limit: int,
    descending: bool,
) -> None:
    runner.run(_walk(shared_db, steps, limit, DESC if descending else ASC))


async def _walk(db: Database, steps: list[tuple[str, int]], limit: int, order: Order) -> None:
    session_id = f"s{next(_numbers)}"
    await create(db, session_id)
    model = Model()
    cursor: str | None = None
    seen: list[str] = []
    must: set[str] = set()
    started = ended = False
    for step, choice in [("queue", 0), ("event", 0), ("queue", 0), *steps, *[("page", 0)] * 60]:
        if step == "page" and not ended:
            if not started:
                must, started = set(model.known), True
            response = await page(
                db, session_id=session_id, order=order, limit=limit, cursor=cursor
            )
            assert response.data
            seen += ids(response)
            cursor, ended = response.next_page, not response.HasField("next_page")
        elif step != "page":
            await _step(db, session_id, model, step, choice)
    assert ended
    assert must <= set(seen)
    unique = list(dict.fromkeys(seen))
    if order == ASC and len(unique) == len(seen):
        assert set(unique) <= set(model.known)


async def _step(db: Database, session_id: str, model: Model, step: str, choice: int) -> None:
    if step == "mark":
        if model.waiting:
            event_id = sorted(model.waiting)[choice % len(model.waiting)]
            await append(db, session_id, mark(event_id, model.waiting.pop(event_id)))
            model.position += 1
        return
    model.position += 1
    event_id = f"e{model.position:03}"
    model.known.append(event_id)
    if step == "queue":
        model.waiting[event_id] = model.position
        await append(db, session_id, queued(event_id))
    else:
        await append(db, session_id, event(event_id))


_numbers = itertools.count()

MAX = 2**63 - 1
_PLANS: dict[str, tuple[object, ...]] = {
    "_ASCENDING": ("w", "s", 10, 0, 2, 10**6, MAX),
    "_DESCENDING": ("w", "s", MAX, MAX, 2, 10**6, 0),
    "_ASCENDING_TYPED": ("w", "s", 10, 0, 2, 10**6, MAX, ["user.message", "session.error"]),
    "_DESCENDING_TYPED": ("w", "s", MAX, 0, 2, 10**6, 0, ["user.message", "session.error"]),
    # Halving looks at one row a step.
    "_THROUGH": ("w", "s", 20000, datetime(2026, 1, 1, 2, tzinfo=UTC), True),
    "_ENTRIES": ("w", "s", 10, 2**63 - 1, 2, 10**6),
}


async def test_pages_read_through_indexes_and_not_all_of_a_long_history(db: Database) -> None:
    async with db.commit("ledger.test") as c:
        await c.execute(
            "INSERT INTO ledger.log (workspace_id, session_id, position, kind, event_id,"
            " event_type, processed_at, sealed, commitment, digest)"
            " SELECT 'w', 's', n, 1, 'e' || n, CASE WHEN n % 5000 = 0 THEN 'session.error'"
            " ELSE 'agent.message' END, timestamptz '2026-01-01Z' + n * interval '1 second',"
            " '', '', '' FROM generate_series(1, 20000) AS n"
        )
    await _assert_reads_little(db, "_ENTRIES")
    async with db.commit("ledger.test") as c:
        await c.execute("ANALYZE ledger.log")
    for name in _PLANS:
        await _assert_reads_little(db, name)


async def _assert_reads_little(db: Database, name: str) -> None:
    sql = getattr(log_page_store, name)
    async with db.read() as c:
        await c.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        rows = await c.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *_PLANS[name])
    plan = stdlib_json.loads(rows[0][0])[0]["Plan"]
    assert max(_rows_read(plan)) <= (20 if name == "_THROUGH" else 10), name


def _rows_read(node: dict[str, object]) -> list[int]:
    read = int(float(str(node["Actual Rows"]))) + int(str(node.get("Rows Removed by Filter", 0)))
    children = node.get("Plans", [])
    assert isinstance(children, list)
    return [read, *(count for child in children for count in _rows_read(child))]
