"""The projector is total, deterministic and bounded, and keeps what it can show."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation import digests
from foundation.canonical import encode
from services.journal.projection import (
    BODY_BYTES_MAX,
    PARTS_MAX,
    may_have_run,
    not_run,
    project,
)

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)
BLOCK = st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}, optional={"more": JSON})


def text_blocks(*texts: str) -> bytes:
    return json.dumps([{"type": "text", "text": text} for text in texts]).encode()


def failure(code: str) -> bytes:
    return b'{"code":"%s","kind":"failure","v":1}' % code.encode()


@given(st.binary(max_size=200) | JSON.map(lambda v: json.dumps(v).encode()), st.booleans())
def test_it_never_raises_and_never_varies(content: bytes, is_error: bool) -> None:
    first = project(content, is_error=is_error)
    assert first == project(content, is_error=is_error)
    assert json.loads(first.body)["v"] == 1
    assert len(first.body) <= BODY_BYTES_MAX
    assert first.digest == digests.digest("counterfoil.projection.v1", first.body)


@given(st.lists(BLOCK, max_size=PARTS_MAX), st.booleans())
def test_text_is_kept_and_the_body_is_canonical(blocks: list[Any], is_error: bool) -> None:
    body = project(json.dumps(blocks).encode(), is_error=is_error).body
    shown = json.loads(body)
    assert body == encode(shown)
    assert shown["kind"] == "content"
    assert shown.get("is_error", False) is is_error
    assert [p["text"] for p in shown["parts"]] == [
        b["text"].replace("\x00", "\\u0000") for b in blocks
    ]


def test_the_bytes_are_those_of_the_contract() -> None:
    assert (
        project(text_blocks("a", "ü"), is_error=False).body
        == (
            '{"kind":"content","parts":[{"kind":"text","text":"a"},{"kind":"text","text":"ü"}],"v":1}'
        ).encode()
    )
    assert (
        project(b"", is_error=True).body == b'{"is_error":true,"kind":"content","parts":[],"v":1}'
    )


def test_what_text_cannot_carry_is_replaced() -> None:
    content = rb'[{"type":"text","text":"a\u0000b\ud800c\ud83d\ude00"}]'
    shown = json.loads(project(content, is_error=False).body)
    assert shown["parts"][0]["text"] == "a\\u0000b\ufffdc😀"


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b"[1]",
        b"[[]]",
        b'[{"type":"image"}]',
        b'[{"type":"text"}]',
        b'[{"type":"text","text":1}]',
        b'[{"type":"text","text":"a","text":"b"}]',
        b'[{"type":"text","text":"a","n":NaN}]',
        b"\xff",
        b"[",
        b"[" * 200_000,
        b'[{"type":"text","text":"a","n":' + b"9" * 5_000 + b"}]",
    ],
)
def test_what_has_no_projection_says_so(content: bytes) -> None:
    assert project(content, is_error=False).body == failure("projection_failed")


def test_what_is_too_large_says_so() -> None:
    overhead = len(project(text_blocks(""), is_error=False).body)
    room = BODY_BYTES_MAX - overhead
    assert len(project(text_blocks("x" * room), is_error=False).body) == BODY_BYTES_MAX
    too_large = failure("projection_too_large")
    assert project(text_blocks("x" * (room + 1)), is_error=False).body == too_large
    assert project(text_blocks(*["x"] * PARTS_MAX), is_error=False).body != too_large
    assert project(text_blocks(*["x"] * (PARTS_MAX + 1)), is_error=False).body == too_large


def test_closed_calls_have_projections_of_their_own() -> None:
    for projected in (not_run(), may_have_run()):
        assert json.loads(projected.body)["is_error"] is True
    assert not_run() != may_have_run()
