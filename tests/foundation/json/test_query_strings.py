"""Query parameters: names, brackets, repetition, and each type."""

import pytest

from foundation.json import InvalidJson, decode_query
from tests.foundation.json.samples import sample


def test_each_type_is_read_from_text() -> None:
    message = decode_query(
        sample("ListRequest"),
        [
            ("types[]", "user.message"),
            ("types", "agent.message"),
            ("created_at[gte]", "2026-01-01T00:00:00+00:00"),
            ("limit", "20"),
            ("include_archived", "true"),
            ("order", "dark_red"),
            ("page", ""),
            ("colors[]", "Blue!"),
            ("colors[]", "dark_red"),
            ("ratio", "-1.5"),
            ("beta", "true"),
        ],
    )
    assert list(message.types) == ["user.message", "agent.message"]
    assert message.created_at_gte.seconds == 1_767_225_600
    assert (message.limit, message.include_archived, message.order) == (20, True, 1)
    assert list(message.colors) == [2, 1]
    assert message.ratio == -1.5


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("limit", "x", "limit: expected an integer, got 'x'"),
        ("limit", "", "limit: expected an integer, got ''"),
        ("limit", "1.0", "limit: expected an integer, got '1.0'"),
        ("limit", "٣", "limit: expected an integer, got '٣'"),
        ("limit", "99999999999", "limit: expected an integer from -2147483648 to 2147483647, got"),
        ("ratio", "nan", "ratio: expected a number, got 'nan'"),
        ("include_archived", "1", "include_archived: expected true or false, got '1'"),
        ("order", "up", "order: expected one of dark_red, Blue!, got 'up'"),
        ("created_at[gte]", "today", "created_at[gte]: is not an RFC 3339 timestamp: 'today'"),
        ("page", "\udcff", "page: is not valid UTF-8"),
        ("session_id", "sesn_1", "session_id: is set by the server and not accepted in a query"),
    ],
)
def test_wrong_texts_are_refused_by_name(name: str, text: str, error: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        decode_query(sample("ListRequest"), [(name, text)])
    assert str(caught.value).startswith(error)


def test_a_single_value_is_given_once() -> None:
    with pytest.raises(InvalidJson, match="limit: is given more than once"):
        decode_query(sample("ListRequest"), [("limit", "1"), ("limit", "1")])


@pytest.mark.parametrize("name", ["nope", "created_at_gte", "leaf", "types[0]"])
def test_unknown_parameters_are_ignored_or_refused(name: str) -> None:
    pairs = [(name, "x")]
    assert decode_query(sample("ListRequest"), pairs) == sample("ListRequest")()
    with pytest.raises(InvalidJson, match="unknown parameter"):
        decode_query(sample("ListRequest"), pairs, ignore_unknown=False)


def test_the_path_fills_what_the_query_may_not() -> None:
    message = decode_query(sample("ListRequest"), [], bound={"session_id": "sesn_1"})
    assert message.session_id == "sesn_1"
