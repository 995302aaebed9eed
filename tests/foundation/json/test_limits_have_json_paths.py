"""A broken limit is reported at the place that a JSON client knows, with limit and value."""

from typing import Any

import protovalidate
import pytest

from foundation.json import Violation, json_path, validate
from tests.foundation.json.samples import sample

LONG_TEXT = {"text": {"text": "x" * 11}}

CASES: list[tuple[str, dict[str, Any], list[tuple[str, str]]]] = [
    (
        "SendRequest",
        {"events": [{"user_message": {"content": [{"text": {}}, LONG_TEXT]}}]},
        [("events.0.content.1.text", "must be at most 10 characters, got 11")],
    ),
    (
        "SendRequest",
        {"events": [{"user_message": {"content": [{"image": {}}]}}, {}]},
        [("events.0.content.0.source", "value is required"), ("events.1.type", "is required")],
    ),
    (
        "Event",
        {"user_message": {}},
        [("content", "must contain at least 1 item(s), got 0")],
    ),
    (
        "Block",
        {"image": {"source": {"base64": {"media_type": "x"}}}},
        [("source.media_type", "does not match regex pattern `^image/[a-z]+$`")],
    ),
    (
        "HasStack",
        {"stack": {"items": [{}] * 3}, "limit": 101, "blob": b"1234"},
        [
            ("stack", "must contain no more than 2 item(s), got 3"),
            ("limit", "must be greater than or equal to 0 and less than or equal to 100, got 101"),
            ("blob", "must be at most 3 bytes, got 4"),
        ],
    ),
    (
        "HasStack",
        {"metadata": {"toolong": "ok"}},
        [("metadata.toolong", "key must be at most 4 characters, got 7")],
    ),
    (
        "HasStack",
        {"metadata": {"a": "", "b": "", "c": ""}},
        [("metadata", "map must be at most 2 entries, got 3")],
    ),
    (
        "HasStack",
        {"metadata": {"k": "too long"}},
        [("metadata.k", "must be at most 6 characters, got 8")],
    ),
    (
        "UpdateRequest",
        {"metadata": {"set": {"a": "", "b": "", "c": ""}}},
        [("metadata", "has too many keys")],
    ),
    (
        "Agent",
        {"name": "toolong"},
        [("name", "must be at most 5 characters, got 7")],
    ),
    ("ListRequest", {"limit": 101}, [("limit", "must be less than or equal to 100, got 101")]),
    ("HasStack", {"color": 1}, []),
]


@pytest.mark.parametrize(("name", "fields", "expected"), CASES)
def test_violations(name: str, fields: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert validate(sample(name)(**fields)) == [Violation(*pair) for pair in expected]


def test_a_field_path_becomes_a_json_path() -> None:
    message = sample("SendRequest")(events=[{"user_message": {"content": [LONG_TEXT]}}])
    (violation,) = protovalidate.collect_violations(message)
    assert violation.proto.field is not None
    path = json_path(sample("SendRequest"), violation.proto.field)
    assert path == "events.0.content.0.text"
