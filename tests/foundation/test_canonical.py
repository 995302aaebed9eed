"""Canonical JSON: one value, one sequence of bytes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.canonical import encode

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(
            st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(VALUES)
def test_what_was_encoded_encodes_the_same_again(value: Any) -> None:
    encoded = encode(value)
    assert encode(json.loads(encoded)) == encoded


@given(st.dictionaries(st.text(max_size=3), st.integers(), max_size=6))
def test_the_order_of_keys_does_not_matter(value: dict[str, int]) -> None:
    normal = {key.replace("\x00", "\\u0000") for key in value}
    if len(normal) < len(value):
        return
    assert encode(dict(reversed(value.items()))) == encode(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, b"1"),
        (-0.0, b"0"),
        (0.1, b"0.1"),
        (1e22, b"1e+22"),
        (2**53 - 1, b"9007199254740991"),
        (2**53, b'"9007199254740992"'),
        (-(2**53), b'"-9007199254740992"'),
        ("\x00", b'"\\\\u0000"'),
        ("\ud800x", b'"\xef\xbf\xbdx"'),
        ("é\n/", '"é\\n/"'.encode()),
        ({"b": [True, None], "a": {}}, b'{"a":{},"b":[true,null]}'),
        ({"é": 1, "z": 2, "😀": 3, "\uffff": 4}, '{"z":2,"é":1,"\uffff":4,"😀":3}'.encode()),
    ],
)
def test_forms(value: object, expected: bytes) -> None:
    assert encode(value) == expected


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {1: 2}, (1,), b"x", {"\x00": 1, "\\u0000": 2}, [set()]]
)
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="canonical JSON"):
        encode(value)
