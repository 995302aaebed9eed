"""Where two requests differ first, and why: never for a reason that was not recorded. Pure."""

import dataclasses
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest
from counterfoil.context.v1 import snapshots_pb2 as pb
from hypothesis import given
from hypothesis import strategies as st

from foundation.json import enum_literals
from services.context.diff import Block, Made, Place, cause_of, change, compare, made_of, take_apart
from services.context.materializer import request_head, request_tail
from services.context.reducer import reduce
from tests.services.context.conftest import runtime
from tests.services.context.histories import History, histories, text, written

CHANGES = enum_literals(pb.ContextChange.DESCRIPTOR)
TOOLS = runtime().tools
MADE = Made(b"p", b"s", b"t", ("conservative", 1))
FACTS: dict[str, dict[str, Any]] = {
    "parameters": {"parameters": b"q"},
    "system": {"system": b"r"},
    "tools": {"tools": b"u"},
    "profile": {"profile": ("conservative", 2)},
    "checkpoint": {"checkpoint_id": "ckpt_1"},
    "transition": {"transition_head": (1, b"d")},
    "withheld": {"withheld_seq": 7},
    "summary": {"purpose": "summary"},
}
"""A change of each fact, in the order of the bytes that it changes."""


def body_of(history: History, *, stream: bool = True, **pinned: Any) -> bytes:
    messages = written(reduce(history.entries, history.projections).items)
    head = request_head(runtime(**pinned), 1000)
    return head + b",".join(messages) + request_tail(stream=stream)


def said(one: bytes, other: bytes, **recorded: Any) -> tuple[str | None, Place | None]:
    """Cause and place; `recorded` is what was recorded between the two."""
    left, right = take_apart(one), take_apart(other)
    found = compare(left, right)
    made = made_of(left, MADE.profile), made_of(right, **{"profile": MADE.profile, **recorded})
    return CHANGES.get(change(found, *made)), found.place


def prefix_of(request: bytes) -> bytes:
    return request.removesuffix(request_tail(stream=True)).removesuffix(request_tail(stream=False))


@given(histories(), st.integers(0, 30), st.booleans())
def test_a_request_that_goes_on_is_appended(history: History, at: int, stream: bool) -> None:
    begun = dataclasses.replace(history, entries=history.entries[:at])
    whole = reduce(history.entries, history.projections).items
    part = reduce(begun.entries, begun.projections).items
    if whole[: len(part)] != part:
        return  # an entry took earlier ones out
    one, other = body_of(begun, stream=stream), body_of(history)
    found = compare(take_apart(one), take_apart(other))
    grown = len(written(whole)) > len(written(part))
    for pair in ((one, other), (other, one)):
        cause, place = said(*pair)
        if grown:
            assert (cause, place) == ("appended", None)
        else:
            assert cause == ("same" if one == other else "parameters")
    assert found.shared_bytes >= len(prefix_of(one))
    assert found.shared_blocks == len(take_apart(one).blocks)


def assembled(blocks: Sequence[Block]) -> bytes:
    """A request with these content blocks."""
    messages = [
        b'{"role":%b,"content":[%b]}' % (role, b",".join(block.body for block in group))
        for (_, role), group in groupby(blocks, lambda block: (block.message, block.role))
    ]
    return b'{"model":"m","messages":[%b],"stream":true}' % b",".join(messages)


@given(histories(), st.data())
def test_a_changed_block_is_found_where_it_is(history: History, data: st.DataObject) -> None:
    blocks = list(take_apart(body_of(history)).blocks)
    if not blocks:
        return
    before = assembled(blocks)
    index = data.draw(st.integers(0, len(blocks) - 1))
    message = blocks[index].message
    blocks[index] = blocks[index]._replace(body=text("something new"))
    after = assembled(blocks)
    place = Place(pb.REQUEST_PART_MESSAGES, index, message)
    assert said(before, after, transition_head=(1, b"d")) == ("transition", place)
    assert said(before, after, checkpoint_id="ckpt_1") == ("checkpoint", place)
    assert said(before, after, withheld_seq=3) == ("withheld", place)
    assert said(before, after, purpose="summary") == ("summary", place)
    assert said(before, after) == ("bug", place)


def test_messages_that_are_divided_otherwise_differ() -> None:
    together = body_of(History().ask(text("a"), text("b")))
    apart = body_of(History().ask(text("a")).ask(text("b")))
    found = compare(take_apart(together), take_apart(apart))
    assert found.place == Place(pb.REQUEST_PART_MESSAGES, 1, 0)
    assert found.shared_blocks == 1


@pytest.mark.parametrize(
    ("pinned", "recorded", "cause", "place"),
    [
        ({"model": "offline-2"}, {}, "parameters", Place(pb.REQUEST_PART_PARAMETERS)),
        ({"model": "m"}, {"profile": ("p", 1)}, "profile", Place(pb.REQUEST_PART_PARAMETERS)),
        ({"system": "other"}, {"profile": ("p", 1)}, "system", Place(pb.REQUEST_PART_SYSTEM)),
        ({"system": ""}, {}, "system", Place(pb.REQUEST_PART_SYSTEM)),
        ({"tools": []}, {}, "tools", Place(pb.REQUEST_PART_TOOLS, 0)),
        (
            {"tools": [*TOOLS, *TOOLS]},
            {},
            "tools",
            Place(pb.REQUEST_PART_TOOLS, 1),
        ),
    ],
)
def test_what_stands_in_front_of_the_messages_is_found(
    pinned: dict[str, Any], recorded: dict[str, Any], cause: str, place: Place
) -> None:
    history = History().ask(text("a"))
    found = said(body_of(history), body_of(history, **pinned), **recorded)
    assert found == (cause, place)


def test_a_request_that_is_not_streamed_differs_behind_its_messages() -> None:
    history = History().ask(text("a"))
    streamed, whole = body_of(history), body_of(history, stream=False)
    assert said(streamed, whole) == ("parameters", Place(pb.REQUEST_PART_PARAMETERS))
    assert compare(take_apart(streamed), take_apart(whole)).shared_blocks == 1


@given(st.sets(st.sampled_from(list(FACTS)), min_size=1))
def test_a_recorded_change_is_named_and_is_never_a_bug(names: set[str]) -> None:
    changed = dataclasses.replace(MADE, **{k: v for name in names for k, v in FACTS[name].items()})
    expected = next(name for name in FACTS if name in names)
    if expected == "parameters" and "profile" in names:
        expected = "profile"  # which decides what a request may ask for
    assert CHANGES[cause_of(MADE, changed)] == expected
    assert CHANGES[cause_of(changed, MADE)] == expected


def test_without_any_record_it_is_a_bug() -> None:
    assert CHANGES[cause_of(MADE, dataclasses.replace(MADE))] == "bug"


def test_every_cause_can_be_named() -> None:
    assert {*FACTS, "same", "appended", "bug"} == set(CHANGES.values())
