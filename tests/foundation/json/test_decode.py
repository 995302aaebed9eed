"""JSON to messages: every option, and every way in which a value can be wrong."""

import json
from typing import Any

import pytest

from foundation.json import InvalidJson, decode, present
from tests.foundation.json.samples import sample


def refused(name: str, document: Any, **options: Any) -> str:
    """Decode what must be refused; return path and message."""
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    with pytest.raises(InvalidJson) as caught:
        decode(sample(name), raw, **options)
    return str(caught.value)


def accepted(name: str, document: Any, **options: Any) -> Any:
    return decode(sample(name), json.dumps(document).encode(), **options)


@pytest.mark.parametrize("raw", [b"", b" \n", b"{}"])
def test_an_empty_body_is_an_empty_object(raw: bytes) -> None:
    assert decode(sample("Scalars"), raw) == sample("Scalars")()


def test_scalars_fill_their_fields() -> None:
    message = accepted(
        "Scalars",
        {
            "flag": True,
            "small": -(2**31),
            "big": 2**63 - 1,
            "huge": 2**64 - 1,
            "ratio": 2.5,
            "text": "\x00 é \U0001f600",
            "blob": "AP8=",
            "color": "dark_red",
            "at": "2026-01-01T02:30:00.123456789123+02:30",
            "count": 7,
            "single": 3,
        },
    )
    assert (message.flag, message.small, message.big) == (True, -(2**31), 2**63 - 1)
    assert (message.huge, message.ratio, message.count, message.single) == (2**64 - 1, 2.5, 7, 3.0)
    assert (message.text, message.blob, message.color) == ("\x00 é \U0001f600", b"\x00\xff", 1)
    assert (message.at.seconds, message.at.nanos) == (1_767_225_600, 123_456_789)


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ([], "expected an object, got an array"),
        ("x", "expected an object, got a string"),
        (None, "expected an object, got null"),
        ({"flag": 1}, "flag: expected a boolean, got a number"),
        ({"flag": "true"}, "flag: expected a boolean, got a string"),
        ({"flag": None}, "flag: expected a boolean, got null"),
        ({"small": "1"}, "small: expected an integer, got a string"),
        ({"small": True}, "small: expected an integer, got a boolean"),
        ({"small": 1.0}, "small: expected an integer, got a number with a fraction or exponent"),
        (
            {"small": 2**31},
            f"small: expected an integer from {-(2**31)} to {2**31 - 1}, got {2**31}",
        ),
        ({"count": -1}, f"count: expected an integer from 0 to {2**32 - 1}, got -1"),
        ({"big": 2**63}, f"big: expected an integer from {-(2**63)} to {2**63 - 1}, got {2**63}"),
        (
            {"huge": 10**4000},
            f"huge: expected an integer from 0 to {2**64 - 1}, got a much larger number",
        ),
        (b'{"ratio":1e400}', "ratio: is a number out of range"),
        ({"ratio": 10**400}, "ratio: is a number out of range"),
        ({"ratio": "1"}, "ratio: expected a number, got a string"),
        ({"ratio": False}, "ratio: expected a number, got a boolean"),
        ({"single": 1e39}, "single: is a number out of range"),
        ({"text": 5}, "text: expected a string, got a number"),
        ({"text": {}}, "text: expected a string, got an object"),
        ({"blob": "x"}, "blob: is not valid base64"),
        ({"blob": "é==="}, "blob: is not valid base64"),
        ({"blob": 1}, "blob: expected a base64 string, got a number"),
        ({"color": "red"}, "color: expected one of dark_red, Blue!, got 'red'"),
        ({"color": "unspecified"}, "color: expected one of dark_red, Blue!, got 'unspecified'"),
        ({"color": 1}, "color: expected a string, got a number"),
        ({"at": 5}, "at: expected an RFC 3339 timestamp, got a number"),
        ({"at": "2026-01-01"}, "at: is not an RFC 3339 timestamp: '2026-01-01'"),
        ({"at": "2026-01-01T00:00:00"}, "at: is not an RFC 3339 timestamp: '2026-01-01T00:00:00'"),
        (
            {"at": "2026-02-30T00:00:00Z"},
            "at: is not a date and time that exists: '2026-02-30T00:00:00Z'",
        ),
        ({"at": "0001-01-01T00:00:00+01:00"}, "at: is a timestamp out of range"),
        ({"nope": 1}, "nope: unknown field"),
        ({"Text": ""}, "Text: unknown field"),
    ],
)
def test_wrong_values_say_what_was_expected(document: Any, error: str) -> None:
    assert refused("Scalars", document) == error


@pytest.mark.parametrize(
    ("text", "seconds", "nanos"),
    [
        ("1970-01-01T00:00:00Z", 0, 0),
        ("1970-01-01t00:00:00.5z", 0, 500_000_000),
        ("1969-12-31T23:59:59.000000001-00:00", -1, 1),
        ("2024-02-29T12:00:00-08:00", 1_709_236_800, 0),
        ("9999-12-31T23:59:59.9999999999Z", 253_402_300_799, 999_999_999),
    ],
)
def test_timestamps_take_offsets_and_any_fraction(text: str, seconds: int, nanos: int) -> None:
    at = accepted("Scalars", {"at": text}).at
    assert (at.seconds, at.nanos) == (seconds, nanos)


def test_null_unsets_only_where_the_contract_allows_it() -> None:
    nullable = ["nullable", "nullable_leaf", "nullable_at", "nullable_list", "nullable_text"]
    assert accepted("Presence", dict.fromkeys(nullable)) == sample("Presence")()
    assert refused("Presence", {"plain": None}) == "plain: expected a string, got null"
    assert refused("Presence", {"leaf": None}) == "leaf: expected an object, got null"
    assert refused("Presence", {"list": None}) == "list: expected an array, got null"
    assert refused("Presence", {"labels": None}) == "labels: expected an object, got null"
    assert refused("Presence", {"list": ["a", None]}) == "list.1: expected a string, got null"


def test_presence_of_optional_values_is_kept() -> None:
    message = accepted("Presence", {"plain": "", "number": 0, "leaf": {}})
    assert message.HasField("plain")
    assert message.HasField("number")
    assert message.HasField("leaf")
    assert not message.HasField("nullable")


def test_lists_and_maps_report_the_place_inside() -> None:
    message = accepted("Presence", {"labels": {"a": "b"}, "leaves": {"x": {"name": "y"}}})
    assert message.labels == {"a": "b"}
    assert message.leaves["x"].name == "y"
    assert refused("Presence", {"labels": {"a": 1}}) == "labels.a: expected a string, got a number"
    assert refused("Presence", {"leaves": {"x": {"y": 1}}}) == "leaves.x.y: unknown field"
    assert refused("Presence", {"colors": ["Blue!", "x"]}).startswith("colors.1: expected one of")
    assert refused("Presence", {"list": {}}) == "list: expected an array, got an object"


def test_raw_json_keeps_its_bytes() -> None:
    raw = (
        b'{ "value" : {"b":1.10, "a":1e400,"n":123456789012345678901234567890} ,'
        b' "nullable":null, "items":[ 1.0 , "\\u0000\\u00e9", [ ] ], "named":{"k": { } },'
        b' "nested":{"value":[1,  2]}, "list":[{"value":0.10},{}], "map":{"m":{"items":[{}]}} }'
    )
    message = decode(sample("RawValues"), raw)
    assert message.value == b'{"b":1.10, "a":1e400,"n":123456789012345678901234567890}'
    assert message.nullable == b""
    assert list(message.items) == [b"1.0", b'"\\u0000\\u00e9"', b"[ ]"]
    assert dict(message.named) == {"k": b"{ }"}
    assert message.nested.value == b"[1,  2]"
    assert message.list[0].value == b"0.10"
    assert list(message.map["m"].items) == [b"{}"]


def test_raw_json_is_checked_like_everything_else() -> None:
    assert refused("RawValues", b'{"value":{"a":1,"a":2}}') == "value.a: is a duplicate key"
    assert refused("RawValues", {"value": None}) == "value: must not be null"
    assert refused("RawValues", {"items": [1, None]}) == "items.1: must not be null"
    assert refused("RawValues", {"nested": {"items": 1}}) == (
        "nested.items: expected an array, got a number"
    )


def test_a_string_stands_for_a_message() -> None:
    assert accepted("Model", "claude-x") == sample("Model")(id="claude-x")
    assert accepted("Effort", "Blue!") == sample("Effort")(level=2)
    assert accepted("AgentReference", "agent_1").agent.id == "agent_1"
    assert accepted("ImageSource", "https://x").url.url == "https://x"
    assert refused("Model", 5) == "expected an object or a string, got a number"
    assert refused("Effort", "red") == "expected one of dark_red, Blue!, got 'red'"


def test_literals_may_be_absent_and_must_be_equal() -> None:
    assert accepted("Agent", {"name": "a", "class": "c"}).kind == "c"
    assert accepted("Agent", {"type": "agent", "name": "a"}).name == "a"
    assert refused("Agent", {"type": "model"}) == "type: expected 'agent', got 'model'"
    assert refused("Agent", {"type": None}) == "type: expected 'agent', got null"
    assert refused("Agent", {"kind": "c"}) == "kind: unknown field"


def test_a_union_is_one_flat_object() -> None:
    message = accepted(
        "SendRequest",
        {
            "events": [
                {"content": [{"text": "hi", "type": "text"}], "type": "user.message"},
                {"type": "user.interrupt", "session_thread_id": "sthr_1"},
                {"type": "user.message", "content": [{"type": "image", "source": "https://x"}]},
            ]
        },
    )
    assert message.events[0].user_message.content[0].text.text == "hi"
    assert message.events[1].WhichOneof("event") == "user_interrupt"
    assert message.events[1].session_thread_id == "sthr_1"
    assert message.events[2].user_message.content[0].image.source.url.url == "https://x"


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({}, "type: is required: one of user.message, user.interrupt, agent.tool_use, "),
        ({"type": 5}, "type: expected a string, got a number"),
        ({"type": []}, "type: expected a string, got an array"),
        ({"type": None}, "type: expected a string, got null"),
        ({"type": "user_message"}, "type: expected one of user.message, user.interrupt, "),
        ({"type": "user.interrupt", "content": []}, "content: unknown field"),
        ({"type": "user.interrupt", "user_interrupt": {}}, "user_interrupt: unknown field"),
        ({"type": "user.interrupt", "id": "sevt_1"}, "id: is output only and not accepted"),
        ({"type": "user.interrupt", "processed_at": None}, "processed_at: is output only and not"),
        ({"type": "user.message", "content": [{"type": "text", "text": 1}]}, "content.0.text: exp"),
        (
            {"type": "user.message", "content": [{"type": "image", "source": {"type": "file"}}]},
            "content.0.source.type: expected one of url, base64, got 'file'",
        ),
        ("user.interrupt", "expected an object, got a string"),
    ],
)
def test_a_wrong_union_names_its_place(event: Any, error: str) -> None:
    text = refused("SendRequest", {"events": [{"type": "user.interrupt"}, event]})
    assert text.startswith("events.1: " if error.startswith("expected an object") else "events.1.")
    assert text.removeprefix("events.1").lstrip(".: ").startswith(error)


def test_raw_json_inside_a_union_variant_is_sliced() -> None:
    raw = b'{"type":"agent.tool_use","name":"n","input":{ "x" : 1.10 }}'
    assert decode(sample("Event"), raw).tool_use.input == b'{ "x" : 1.10 }'


def test_members_of_one_oneof_exclude_each_other() -> None:
    assert accepted("Choice", {"leaf": {}}).WhichOneof("choice") == "leaf"
    assert (
        refused("Choice", {"leaf": {}, "text": "x"}) == "leaf: cannot be given together with text"
    )


def test_a_bare_array_stands_for_a_message() -> None:
    message = accepted("HasStack", {"stack": [{"name": "a"}, {}]})
    assert [leaf.name for leaf in message.stack.items] == ["a", ""]
    assert accepted("Stack", [{}]).items
    assert refused("HasStack", {"stack": [{}, {"x": 1}]}) == "stack.1.x: unknown field"
    assert refused("HasStack", {"stack": {}}) == "stack: expected an array, got an object"


def test_server_bound_fields_are_refused_in_a_body_and_filled_by_the_server() -> None:
    words = "is set by the server and not accepted in a body"
    assert refused("SendRequest", {"session_id": "sesn_1"}) == f"session_id: {words}"
    assert refused("SendRequest", {"session_id": None}) == f"session_id: {words}"
    assert refused("UpdateRequest", {"update_mask": "name"}) == f"update_mask: {words}"
    message = accepted("SendRequest", {}, bound={"session_id": "sesn_1"})
    assert message.session_id == "sesn_1"


def test_bound_values_are_read_by_the_type_of_their_field() -> None:
    message = accepted("Presence", {"leaf": {}}, bound={"leaf.name": "x", "number": "42"})
    assert (message.leaf.name, message.number) == ("x", 42)
    assert refused("Presence", {}, bound={"number": "x"}) == "number: expected an integer, got 'x'"


def test_the_mask_names_the_fields_whose_keys_are_present() -> None:
    document = {"description": None, "metadata": {"a": "b", "c": None}, "class": "x", "tools": None}
    message = accepted("UpdateRequest", document)
    assert list(message.update_mask.paths) == ["description", "metadata", "kind", "tools"]
    assert not message.HasField("description")
    assert dict(message.metadata.set) == {"a": "b"}
    assert list(message.metadata.remove) == ["c"]
    assert accepted("UpdateRequest", {}).HasField("update_mask")


def test_present_names_fields_without_literals() -> None:
    assert present(sample("Agent"), b'{"type":"agent","class":"x"}') == ["kind"]
    assert present(sample("Agent"), b"") == []
    assert present(sample("Model"), b'"x"') == []
    event = b'{"session_thread_id":"s","type":"agent.tool_use","name":"n"}'
    assert present(sample("Event"), event) == ["tool_use.name", "session_thread_id"]


def test_a_metadata_patch_takes_texts_and_null_only() -> None:
    assert refused("UpdateRequest", {"metadata": {"a": 1}}) == (
        "metadata.a: expected a string or null, got a number"
    )
    assert (
        refused("UpdateRequest", {"metadata": []}) == "metadata: expected an object, got an array"
    )


def test_recursive_messages_end_at_the_depth_limit() -> None:
    def tree(levels: int) -> bytes:
        return b'{"children":[' * levels + b"{}" + b"]}" * levels

    assert decode(sample("Tree"), tree(31)).ByteSize() > 0
    assert "nested too deeply" in refused("Tree", tree(32))
