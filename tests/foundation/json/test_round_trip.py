"""What was encoded decodes to the same message, and raw JSON to the same bytes."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from foundation.json import decode, encode
from tests.foundation.json.samples import sample

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
LEAVES = st.fixed_dictionaries({"name": TEXTS})
# The output keeps milliseconds only.
TIMES = st.fixed_dictionaries(
    {
        "seconds": st.integers(-62_135_596_800, 253_402_300_799),
        "nanos": st.integers(0, 999).map(lambda millis: millis * 1_000_000),
    }
)

SCALARS = st.fixed_dictionaries(
    {},
    optional={
        "flag": st.booleans(),
        "small": st.integers(-(2**31), 2**31 - 1),
        "big": st.integers(-(2**63), 2**63 - 1),
        "huge": st.integers(0, 2**64 - 1),
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "text": TEXTS,
        "blob": st.binary(max_size=8),
        "color": st.sampled_from([0, 1, 2]),
        "at": TIMES,
        "count": st.integers(0, 2**32 - 1),
        "single": st.floats(allow_nan=False, allow_infinity=False, width=32),
    },
)
PRESENCE = st.fixed_dictionaries(
    {},
    optional={
        "plain": TEXTS,
        "nullable": TEXTS,
        "number": st.integers(-5, 5),
        "leaf": LEAVES,
        "nullable_leaf": LEAVES,
        "nullable_at": TIMES,
        "list": st.lists(TEXTS),
        "nullable_list": st.lists(TEXTS),
        "absent_list": st.lists(TEXTS),
        "labels": st.dictionaries(TEXTS, TEXTS),
        "leaves": st.dictionaries(TEXTS, LEAVES),
        "absent_text": TEXTS,
        "nullable_text": TEXTS,
        "colors": st.lists(st.sampled_from([1, 2])),
    },
)
NUMBERS = st.sampled_from(
    ["1.10", "1e400", "-0", "-0.0", str(2**70), "1E+2", "0.30000000000000004"]
)
RAW: st.SearchStrategy[bytes] = st.recursive(
    NUMBERS | TEXTS.map(json.dumps) | TEXTS.map(lambda text: json.dumps(text, ensure_ascii=False)),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda found: "[ " + " , ".join(found) + "\n]")
        | st.dictionaries(TEXTS, inner, max_size=3).map(
            lambda found: "{" + ", ".join(f"{json.dumps(k)} : {v}" for k, v in found.items()) + "}"
        )
    ),
    max_leaves=6,
).map(str.encode)
RAW_VALUES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "value": RAW,
        "nullable": RAW,
        "items": st.lists(RAW, max_size=3),
        "named": st.dictionaries(TEXTS, RAW, max_size=3),
        "nested": st.fixed_dictionaries({"value": RAW}),
        "list": st.lists(st.fixed_dictionaries({"items": st.lists(RAW, max_size=2)}), max_size=2),
        "map": st.dictionaries(TEXTS, st.fixed_dictionaries({"value": RAW}), max_size=2),
    },
)
SOURCES = st.one_of(
    st.fixed_dictionaries({"url": st.fixed_dictionaries({"url": TEXTS})}),
    st.fixed_dictionaries({"base64": st.fixed_dictionaries({"data": st.binary(max_size=5)})}),
)
BLOCKS = st.one_of(
    st.fixed_dictionaries({"text": st.fixed_dictionaries({"text": TEXTS})}),
    st.fixed_dictionaries({"image": st.fixed_dictionaries({"source": SOURCES})}),
)
EVENTS = st.one_of(
    st.fixed_dictionaries({"user_message": st.fixed_dictionaries({"content": st.lists(BLOCKS)})}),
    st.fixed_dictionaries({"user_interrupt": st.just({})}, optional={"session_thread_id": TEXTS}),
    st.fixed_dictionaries({"tool_use": st.fixed_dictionaries({"name": TEXTS, "input": RAW})}),
)


def round_trip(name: str, fields: dict[str, Any]) -> None:
    message = sample(name)(**fields)
    rendered = encode(message)
    json.loads(rendered)
    again = decode(sample(name), rendered)
    assert again == message
    assert encode(again) == rendered


@given(fields=SCALARS)
def test_scalars(fields: dict[str, Any]) -> None:
    round_trip("Scalars", fields)


@given(fields=PRESENCE)
def test_presence(fields: dict[str, Any]) -> None:
    round_trip("Presence", fields)


@given(fields=RAW_VALUES)
def test_raw_json_at_every_place(fields: dict[str, Any]) -> None:
    round_trip("RawValues", fields)


@given(events=st.lists(EVENTS, max_size=4))
def test_unions(events: list[dict[str, Any]]) -> None:
    message = sample("SendRequest")(events=events)
    rendered = encode(message)
    # Events carry output-only members; a client that echoes them must leave those out.
    document = rendered.replace(b',"processed_at":null', b"")
    assert decode(sample("SendRequest"), document) == message
