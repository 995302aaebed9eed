"""Previews: between the start and the end of their span, a contiguous prefix, nothing else."""

import json as stdlib_json
from collections.abc import AsyncGenerator

import pytest
from counterfoil.ledger.v1 import turn_pb2
from hypothesis import given
from hypothesis import strategies as st

from foundation.storage import Database
from services.ledger.log_entry import Entry
from services.ledger.log_row import KIND_EVENT
from services.ledger.previews import Admission, Spans
from services.ledger.stream import Hub
from services.ledger.stream_subscriber import Limits
from tests.services.ledger.log.support import WORKSPACE, append, body, create, event
from tests.services.ledger.log.test_stream import Open, Stream, commit, hub_of, opening

START, END = "span.model_request_start", "span.model_request_end"


def start(event_id: str, type: str = "agent.message") -> turn_pb2.Preview:
    return turn_pb2.Preview(event_id=event_id, type=type)


def text(event_id: str, text: str, index: int = 0, type: str = "agent.message") -> turn_pb2.Preview:
    return turn_pb2.Preview(event_id=event_id, type=type, content_index=index, text=text)


def entry(event_id: str, event_type: str, **members: str) -> Entry:
    json = body(event_id, event_type, **members)
    return Entry(1, KIND_EVENT, event_id, event_type, json, json, None)


def opened(*wanted: str) -> Admission:
    admission = Admission(wanted or ("agent.message", "agent.thinking"))
    admission.observe(entry("span", START))
    return admission


def admitted(admission: Admission, *previews: turn_pb2.Preview) -> list[turn_pb2.Preview]:
    return [p for p in previews if admission.admit("span", p, True)]


def test_only_what_was_asked_for() -> None:
    assert not admitted(opened("agent.thinking"), start("m"), text("m", "x"))
    assert admitted(opened("agent.thinking"), start("t", "agent.thinking"))


def test_thinking_has_a_start_and_no_text() -> None:
    thinking = start("t", "agent.thinking"), text("t", "x", type="agent.thinking")
    assert admitted(opened(), *thinking) == [thinking[0]]


def test_a_start_comes_once() -> None:
    assert admitted(opened(), start("m"), start("m")) == [start("m")]


def test_text_without_its_start_is_dropped_for_good() -> None:
    assert not admitted(opened(), text("m", "x"), start("m"), text("m", "y"))


def test_content_indexes_never_skip() -> None:
    one, two = text("m", "a"), text("m", "b", 1)
    assert admitted(opened(), start("m"), one, two, text("m", "c", 3), text("m", "d", 2)) == [
        start("m"),
        one,
        two,
    ]


def test_nothing_comes_behind_the_event_itself() -> None:
    admission = opened()
    assert admitted(admission, start("m"))
    admission.observe(entry("m", "agent.message"))
    assert not admitted(admission, text("m", "late"))


def test_nothing_comes_behind_the_end_of_the_span() -> None:
    admission = opened()
    assert admitted(admission, start("m"))
    admission.observe(entry("end", END, model_request_start_id="span"))
    assert not admitted(admission, text("m", "late"), start("n"))


@given(st.lists(st.booleans(), max_size=30))
def test_under_load_the_text_stays_a_prefix(rooms: list[bool]) -> None:
    admission = opened()
    assert admission.admit("span", start("m"), True)
    taken = [n for n, room in enumerate(rooms) if admission.admit("span", text("m", "x"), room)]
    assert taken == list(range(len(taken)))


def test_previews_wait_for_their_span_and_are_dropped_behind_it() -> None:
    spans = Spans()
    assert not spans.admit("span", [start("m")])
    assert not spans.admit("span", [text("m", "a")])
    assert spans.observe([entry("span", START)]) == [("span", [start("m"), text("m", "a")])]
    assert spans.admit("span", [text("m", "b")]) == [text("m", "b")]
    spans.observe([entry("end", END, model_request_start_id="span")])
    assert not spans.admit("span", [text("m", "c")])
    assert not spans.observe([entry("other", START)])


def test_a_span_that_was_lost_before_it_was_seen_lets_nothing_through() -> None:
    spans = Spans()
    assert not spans.admit("span", [start("m")])
    ended = [entry("span", START), entry("end", END, model_request_start_id="span")]
    assert not spans.observe(ended)


def test_what_waits_is_bounded_and_stays_a_prefix() -> None:
    spans = Spans()
    for number in range(40):
        spans.admit("span", [text("m", f"{number:03}" + "x" * 10_000)])
    ((_, waiting),) = spans.observe([entry("span", START)])
    assert [int(p.text[:3]) for p in waiting] == list(range(len(waiting)))
    assert 10 < len(waiting) < 40


@pytest.fixture
async def hub(db: Database) -> AsyncGenerator[Hub]:
    async with hub_of(db, poll_s=3600) as hub:
        yield hub


@pytest.fixture
async def subscribe(hub: Hub) -> AsyncGenerator[Open]:
    async with opening(hub) as subscribe:
        yield subscribe


BOTH = ("agent.message", "agent.thinking")


async def types(stream: Stream, count: int) -> list[str]:
    return [frame.type for frame in await stream.take(count)]


async def test_a_preview_overtakes_neither_start_nor_end_of_its_span(
    hub: Hub, db: Database, subscribe: Open
) -> None:
    await create(db, "s")
    stream, plain = await subscribe(deltas=BOTH), await subscribe()
    # The span's start is committed, and known here only after a read.
    await append(db, "s", event("span", START))
    hub.wake(WORKSPACE, "s")
    hub.publish(WORKSPACE, "s", "span", [start("m"), text("m", "Hel")])
    assert await types(stream, 3) == [START, "event_start", "event_delta"]
    hub.publish(WORKSPACE, "s", "span", [text("m", "lo")])
    end = event("end", END, model_request_start_id="span")
    await commit(hub, db, event("m"), end)
    assert await types(stream, 3) == ["event_delta", "agent.message", END]
    hub.publish(WORKSPACE, "s", "span", [text("m", "late")])
    await commit(hub, db, event("idle"))
    assert await types(stream, 1) == ["agent.message"]
    assert await types(plain, 4) == [START, "agent.message", END, "agent.message"]


async def test_the_forms_are_those_of_the_reference_contract(
    hub: Hub, db: Database, subscribe: Open
) -> None:
    await create(db, "s")
    stream = await subscribe(deltas=BOTH)
    await commit(hub, db, event("span", START))
    hub.publish(WORKSPACE, "s", "span", [start("m"), text("m", 'a"\né', 0)])
    _, first, second = await stream.take(3)
    assert (first.position, second.position) == (0, 0)
    assert stdlib_json.loads(first.json) == {
        "type": "event_start",
        "event": {"type": "agent.message", "id": "m"},
    }
    assert stdlib_json.loads(second.json) == {
        "type": "event_delta",
        "event_id": "m",
        "delta": {
            "type": "content_delta",
            "index": 0,
            "content": {"type": "text", "text": 'a"\né'},
        },
    }
    assert b"\n" not in second.json


async def test_who_joins_behind_the_start_gets_no_preview_of_that_span(
    hub: Hub, db: Database, subscribe: Open
) -> None:
    await create(db, "s")
    early = await subscribe(deltas=BOTH)
    await commit(hub, db, event("span", START))
    late, replaying = await subscribe(deltas=BOTH), await subscribe(after=0, deltas=BOTH)
    hub.publish(WORKSPACE, "s", "span", [start("m"), text("m", "x")])
    await commit(hub, db, event("end", END, model_request_start_id="span"))
    assert await types(early, 4) == [START, "event_start", "event_delta", END]
    assert await types(late, 1) == [END]
    assert await types(replaying, 2) == [START, END]


async def test_shedding_previews_never_disturbs_entries(db: Database) -> None:
    await create(db, "s")
    limits = Limits(preview_bytes=2000, queue_frames=100)
    async with hub_of(db, poll_s=3600, limits=limits) as hub, opening(hub) as subscribe:
        stream = await subscribe(deltas=BOTH)
        await commit(hub, db, event("span", START))
        previews = [start("m"), *(text("m", f"{n:03}") for n in range(500))]
        hub.publish(WORKSPACE, "s", "span", previews)
        await commit(hub, db, event("m"), event("end", END, model_request_start_id="span"))
        frames = await stream.take(1)
        while frames[-1].type != END:
            frames += await stream.take(1)
        texts = [
            stdlib_json.loads(frame.json)["delta"]["content"]["text"]
            for frame in frames
            if frame.type == "event_delta"
        ]
        assert texts == [f"{n:03}" for n in range(len(texts))]
        assert 5 < len(texts) < 50
        assert [frame.position for frame in frames if frame.position] == [1, 2, 3]
