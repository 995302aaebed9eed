"""Messages to JSON: compact, deterministic, and with exactly the members that clients expect."""

from typing import Any

import pytest

from foundation.json import encode, splice
from tests.foundation.json.samples import sample


def test_plain_values_are_always_rendered() -> None:
    assert encode(sample("Scalars")()) == (
        b'{"flag":false,"small":0,"big":0,"huge":0,"ratio":0.0,"text":"","blob":"",'
        b'"count":0,"single":0.0}'
    )


def test_scalars_are_rendered_exactly() -> None:
    message = sample("Scalars")(
        big=-(2**63),
        huge=2**64 - 1,
        ratio=0.1,
        text='\x00\x1f\x7f"\\/é\u2028\U0001f600<',
        blob=b"\x00\xff",
        color=2,
        at={"seconds": 1_767_225_600, "nanos": 999_999_999},
    )
    assert (
        encode(message)
        == (
            '{"flag":false,"small":0,"big":-9223372036854775808,"huge":18446744073709551615,'
            '"ratio":0.1,"text":"\\u0000\\u001f\x7f\\"\\\\/é\u2028\U0001f600<","blob":"AP8=",'
            '"color":"Blue!","at":"2026-01-01T00:00:00.999Z","count":0,"single":0.0}'
        ).encode()
    )


@pytest.mark.parametrize(
    ("seconds", "nanos", "text"),
    [
        (0, 0, b"1970-01-01T00:00:00.000Z"),
        (-1, 1_000_000, b"1969-12-31T23:59:59.001Z"),
        (-62_135_596_800, 0, b"0001-01-01T00:00:00.000Z"),
        (253_402_300_799, 999_999_999, b"9999-12-31T23:59:59.999Z"),
    ],
)
def test_timestamps_are_utc_with_milliseconds(seconds: int, nanos: int, text: bytes) -> None:
    rendered = encode(sample("Scalars")(at={"seconds": seconds, "nanos": nanos}))
    assert b'"at":"' + text + b'"' in rendered


def test_unset_values_are_absent_null_or_empty() -> None:
    assert encode(sample("Presence")()) == (
        b'{"nullable":null,"nullable_leaf":null,"nullable_at":null,"list":[],"nullable_list":[],'
        b'"labels":{},"nullable_text":"","colors":[]}'
    )


def test_set_values_are_rendered_even_if_empty() -> None:
    message = sample("Presence")(
        plain="", nullable="", number=0, leaf={}, nullable_leaf={}, absent_list=[""], colors=[1]
    )
    assert encode(message) == (
        b'{"plain":"","nullable":"","number":0,"leaf":{"name":""},"nullable_leaf":{"name":""},'
        b'"nullable_at":null,"list":[],"nullable_list":[],"absent_list":[""],"labels":{},'
        b'"nullable_text":"","colors":["dark_red"]}'
    )


def test_maps_are_rendered_in_the_order_of_their_keys() -> None:
    keys = [f"k{number:02}" for number in range(20)]
    message = sample("Presence")(labels=dict.fromkeys(reversed(keys), "x"))
    rendered = encode(message)
    assert sorted(keys, key=lambda key: rendered.index(key.encode())) == keys


def test_raw_json_is_spliced_in() -> None:
    message = sample("RawValues")(
        value=b'{ "b":1.10 }', items=[b"1e400", b'"\\u0000"'], named={"k": b"[ ]"}
    )
    assert encode(message) == (
        b'{"value":{ "b":1.10 },"nullable":null,"items":[1e400,"\\u0000"],"named":{"k":[ ]}}'
    )


def test_a_union_puts_type_behind_id_and_trailing_members_last() -> None:
    idle = sample("Event")(
        id="sevt_1",
        session_thread_id="sthr_1",
        status_idle={"stop_reason": {"requires_action": {"event_ids": ["sevt_0"]}}},
    )
    assert encode(idle) == (
        b'{"id":"sevt_1","type":"session.status_idle","session_thread_id":"sthr_1",'
        b'"stop_reason":{"type":"requires_action","event_ids":["sevt_0"]},"stop_details":null,'
        b'"processed_at":null}'
    )
    assert encode(sample("Event")(user_interrupt={})) == (
        b'{"type":"user.interrupt","processed_at":null}'
    )


def test_literals_stand_behind_id() -> None:
    assert encode(sample("Agent")(id="agent_1", name="n", kind="k")) == (
        b'{"id":"agent_1","type":"agent","name":"n","class":"k"}'
    )


def test_a_shorthand_is_rendered_in_full() -> None:
    assert encode(sample("Model")(id="claude-x")) == b'{"id":"claude-x"}'
    assert encode(sample("AgentReference")(agent={"id": "a"})) == b'{"type":"agent","id":"a"}'


def test_a_bare_array_is_rendered() -> None:
    assert encode(sample("Stack")(items=[{"name": "a"}])) == b'[{"name":"a"}]'


def test_a_metadata_patch_is_one_object() -> None:
    message = sample("UpdateRequest")(metadata={"set": {"b": "1", "a": ""}, "remove": ["c"]})
    assert b'"metadata":{"a":"","b":"1","c":null}' in encode(message)


def test_server_bound_fields_are_never_rendered() -> None:
    message = sample("UpdateRequest")(agent_id="agent_1", update_mask={"paths": ["kind"]})
    assert encode(message) == b'{"description":null,"tools":[],"class":""}'


def test_an_omitted_member_can_be_spliced_in_last() -> None:
    message = sample("Event")(id="sevt_1", user_interrupt={})
    body = encode(message, omit=("processed_at",))
    assert body == b'{"id":"sevt_1","type":"user.interrupt"}'
    assert splice(body, "processed_at", b"null") == encode(message)
    assert splice(b"{}", "a", b"1") == b'{"a":1}'


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("Event", {"id": "sevt_1"}, "has no variant"),
        ("Scalars", {"ratio": float("nan")}, "not a JSON number"),
        ("Scalars", {"single": float("inf")}, "not a JSON number"),
        ("Scalars", {"color": 9}, "has no literal for 9"),
        ("Presence", {"colors": [0]}, "has no literal for 0"),
        ("RawValues", {"items": [b""]}, "raw JSON is empty"),
    ],
)
def test_what_has_no_json_is_an_error(name: str, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        encode(sample(name)(**fields))
