"""Untrusted JSON is refused before any slicing, with the place and the reason."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.json import DEPTH_MAX, InvalidJson, check, items, members, parse

VALID = [
    b"{}",
    b" [1, 2.5e-3, -0, 1e400, true, false, null] \r\n\t",
    b'"\\ud83d\\ude00 \\u0000 \\\\ud800 \\/"',
    b'{"a":{"b":1},"c":{"b":2}}',
    '"é\U0001f600\u2028"'.encode(),
    b"1" * 5000,
    b"[" + b"9" * 5000 + b"]",
    b'"' + b"[{" * 100 + b'"',
    b'"\\"' + b"[{" * 100 + b'\\\\"',
]

REFUSED = [
    (b"", "", "the document ends where a value is expected"),
    (b"{", "", "the document ends where a member name in double quotes is expected"),
    (b"[1,]", "1", "expected a value at byte 3"),
    (b'{"a":1,}', "", "expected a member name in double quotes at byte 7"),
    (b"{'a':1}", "", "expected a member name in double quotes at byte 1"),
    (b'{"a" 1}', "a", "expected ':' at byte 5"),
    (b'{"a":1 "b":2}', "", "expected ',' or '}' at byte 7"),
    (b"[1 2]", "", "expected ',' or ']' at byte 3"),
    (b"{} {}", "", "expected the end of the document at byte 3"),
    (b"[01]", "", "expected ',' or ']' at byte 2"),
    (b"[+1]", "0", "expected a value at byte 1"),
    (b"[.5]", "0", "expected a value at byte 1"),
    (b"[1.]", "", "expected ',' or ']' at byte 2"),
    (b"[0x1]", "", "expected ',' or ']' at byte 2"),
    (b"// no\n1", "", "expected a value at byte 0"),
    (b'{"n":NaN}', "n", "NaN is not a JSON number"),
    (b"[Infinity]", "0", "Infinity is not a JSON number"),
    (b"[-Infinity]", "0", "-Infinity is not a JSON number"),
    (b'["\n"]', "0", "invalid control character at byte 2"),
    (b'["\\x"]', "0", "invalid \\escape at byte 2"),
    (b'["\\u12"]', "0", "invalid \\uXXXX escape at byte 3"),
    (b'["abc', "0", "unterminated string starting at byte 1"),
    (b"\xef\xbb\xbf{}", "", "expected a value at byte 0"),
    ('{"a":1}'.encode("utf-16"), "", "is not valid UTF-8 at byte 0"),
    (b'{"a":{"b":["\xc3\xa9","\xff"]}}', "a.b.1", "is not valid UTF-8 at byte 17"),
    (b'{"a":["\xed\xa0\x80"]}', "a.0", "is not valid UTF-8 at byte 7"),
    (b'{"a":"\\ud800"}', "a", "holds half of a surrogate pair, which is not a character"),
    (b'{"a":["x","\\udc00\\ud800"]}', "a.1", "holds half of a surrogate pair, which is not a"),
    (b'["\\ud800\\ud800\\udc00"]', "0", "holds half of a surrogate pair"),
    (b'["\\\\\\ud800"]', "0", "holds half of a surrogate pair"),
    (b'{"\\udfff":1}', "", "holds half of a surrogate pair"),
    (b'{"a":1,"b":2,"a":3}', "a", "is a duplicate key"),
    (b'{"events":[{"x":{"k":1,"\\u006b":2}}]}', "events.0.x.k", "is a duplicate key"),
    (b"[" * 65 + b"]" * 65, ".".join("0" * 64), "is nested too deeply: at most 64 levels"),
    (b"[" * 1_000_000, ".".join("0" * 64), "is nested too deeply: at most 64 levels"),
]


@pytest.mark.parametrize("raw", VALID)
def test_the_json_grammar_is_accepted(raw: bytes) -> None:
    check(raw)


@pytest.mark.parametrize(("raw", "path", "message"), REFUSED)
def test_everything_else_is_refused_with_its_path(raw: bytes, path: str, message: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        parse(raw)
    assert caught.value.path == path
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("brackets", ["[", "{", "[{"])
def test_depth_64_is_accepted_and_65_is_not(brackets: str) -> None:
    def nested(levels: int) -> bytes:
        kinds = (brackets * levels)[:levels]
        opened = "".join('{"k":' if kind == "{" else "[" for kind in kinds)
        closed = "".join("}" if kind == "{" else "]" for kind in reversed(kinds))
        return f"{opened}1{closed}".encode()

    check(nested(DEPTH_MAX))
    with pytest.raises(InvalidJson, match="nested too deeply"):
        check(nested(DEPTH_MAX + 1))


def test_many_shallow_brackets_and_brackets_in_strings_are_not_deep() -> None:
    check(json.dumps([[{"a": ['"[[\\', "]", '\\"{']}] * 200] * 50).encode())


def test_an_error_repeats_only_a_part_of_a_long_key() -> None:
    key = b"k" * 10_000
    with pytest.raises(InvalidJson) as caught:
        parse(b'{"' + key + b'":NaN}')
    assert len(str(caught.value)) < 200


def test_slices_are_the_exact_bytes() -> None:
    raw = b' { "a" : 1.10 , "b\\u0041" :[ 1e400 , {"z":1,"a":"\\u00e9"} ] } '
    found = members(raw)
    assert {key: bytes(value) for key, value in found.items()} == {
        "a": b"1.10",
        "bA": b'[ 1e400 , {"z":1,"a":"\\u00e9"} ]',
    }
    assert [bytes(item) for item in items(found["bA"])] == [b"1e400", b'{"z":1,"a":"\\u00e9"}']


CHARACTERS = st.characters(codec="utf-8")
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(CHARACTERS),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(CHARACTERS), inner),
    max_leaves=15,
)


@given(value=VALUES, ascii_only=st.booleans())
def test_what_a_json_library_writes_is_accepted(value: Any, ascii_only: bool) -> None:
    assert parse(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(raw=st.text(st.sampled_from('{}[]",:\\u0d8c1e-.ntrlfas \n'), max_size=12))
def test_nothing_that_a_json_library_refuses_is_accepted(raw: str) -> None:
    try:
        value = parse(raw.encode())
    except InvalidJson as error:
        # Only these three are stricter than the library.
        stricter = ("duplicate key", "surrogate", "not a JSON number")
        if not any(words in error.message for words in stricter):
            with pytest.raises(ValueError):  # noqa: PT011 # any refusal of the library will do
                json.loads(raw)
    else:
        assert value == json.loads(raw)
