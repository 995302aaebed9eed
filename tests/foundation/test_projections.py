"""The schema of projections is closed, and every kind has one reading."""

import json
from typing import Any

import pytest

from foundation import projections
from foundation.outcomes import MAY_HAVE_RUN_TEXT
from foundation.projections import Artifact, Text

ARTIFACT = {"kind": "artifact", "artifact_id": "art_1", "media_type": "image/png", "size": 3}


def body(kind: str, **members: Any) -> bytes:
    return json.dumps({"kind": kind, "v": 1, **members}).encode()


@pytest.mark.parametrize(
    ("stored", "texts", "is_error"),
    [
        (body("text", text="a"), ["a"], False),
        (body("text", text="a", is_error=True), ["a"], True),
        (body("json", value={"a": [1]}), ['{"a": [1]}'], False),
        (body("content", parts=[{"kind": "text", "text": "a\n"}]), ["a\n"], False),
        (body("content", parts=[], is_error=True), [], True),
        (body("denied"), ["The call was denied and did not run."], True),
        (
            body("denied", reason="no"),
            ["The call was denied and did not run. Reason given: no"],
            True,
        ),
        (body("failure", code="outcome_unknown"), [MAY_HAVE_RUN_TEXT], True),
        (body("failure", code="of later"), ["The call's result cannot be shown here."], True),
    ],
)
def test_every_kind_is_read(stored: bytes, texts: list[str], is_error: bool) -> None:
    shown = projections.read(stored)
    assert list(shown.texts) == texts
    assert shown.is_error is is_error


def test_artifacts_and_exact_texts_are_read() -> None:
    whole = {**ARTIFACT, "sha256": "00", "w": 1, "h": 2, "alt": "x"}
    stored = b'{"kind":"content","parts":[{"kind":"text","text":"\\u00e9"},%s],"v":1}'
    shown = projections.read(stored % json.dumps(whole).encode())
    assert shown.parts == (
        Text(b'"\\u00e9"'),
        Artifact("art_1", "image/png", 3, "00", 1, 2, b'"x"'),
    )


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"[]",
        b'{"kind":"text","text":"a","v":2}',
        b'{"kind":"text","text":"a"}',
        body("other"),
        body("text"),
        body("text", text=1),
        body("text", text="a", value=1),
        body("json"),
        body("json", value=1, parts=[]),
        body("content"),
        body("content", parts=[{"kind": "text"}]),
        body("content", parts=[{"kind": "text", "text": None}]),
        body("content", parts=[{"kind": "text", "text": "a", "more": 1}]),
        body("content", parts=[ARTIFACT]),
        body("content", parts=[{"kind": "image"}]),
        body("denied", is_error=True),
        body("denied", reason=1),
        body("failure"),
        body("failure", code="x", text="y"),
    ],
)
def test_anything_else_has_no_reading(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        projections.read(stored)
