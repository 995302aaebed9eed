"""Frames come out of a stream as HTML's rules say, wherever its bytes are cut."""

import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runner.adapter.frames import Frame, Frames

ENDS = (b"\n", b"\r", b"\r\n")


def read(pieces: Iterable[bytes]) -> list[Frame]:
    frames = Frames()
    return [frame for piece in pieces for frame in frames.feed(piece)]


def as_html_says(stream: bytes) -> list[Frame]:
    """The rules word for word, over the whole stream at once."""
    found: list[Frame] = []
    event, data = b"", b""
    # What no line end closes is no line.
    for line in re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))[:-1]:
        if line == b"":
            if data:
                found.append((event.decode(errors="replace") or None, data.removesuffix(b"\n")))
            event, data = b"", b""
        elif line.startswith(b":"):
            continue
        else:
            field, value = line.split(b":", 1) if b":" in line else (line, b"")
            value = value.removeprefix(b" ")
            if field == b"event":
                event = value
            elif field == b"data":
                data += value + b"\n"
    return found


LINES = st.one_of(
    st.sampled_from(
        [b"", b"", b"data", b"data:", b"data: ", b"event", b":", b"id: 7", b"retry: 1", b" data: x"]
    ),
    st.sampled_from(
        [b"event: ", b"event:", b"data: ", b"data:", b"data:  ", b": ", b"datax: "]
    ).flatmap(lambda field: st.binary(max_size=6).map(lambda value: field + value)),
)


@st.composite
def cut_streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    lines = draw(st.lists(st.tuples(LINES, st.sampled_from(ENDS)), max_size=12))
    stream = draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + b"".join(a + b for a, b in lines)
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    return stream, pieces


@given(cut_streams())
def test_any_stream_in_any_pieces(drawn: tuple[bytes, list[bytes]]) -> None:
    stream, pieces = drawn
    assert read(pieces) == as_html_says(stream)


@given(cut_streams())
def test_any_stream_byte_by_byte(drawn: tuple[bytes, list[bytes]]) -> None:
    stream, _ = drawn
    assert read(stream[at : at + 1] for at in range(len(stream))) == as_html_says(stream)


@pytest.mark.parametrize("end", ENDS)
def test_every_line_end_at_every_cut(end: bytes) -> None:
    lines = [b"\xef\xbb\xbfevent: a", b"data: {", b"data: }", b"", b": hello", b"data: 2", b"", b""]
    stream = end.join(lines)
    expected: list[Frame] = [("a", b"{\n}"), (None, b"2")]
    for at in range(len(stream) + 1):
        assert read([stream[:at], stream[at:]]) == expected


def test_a_frame_is_there_with_its_last_byte() -> None:
    frames = Frames()
    assert frames.feed(b"data: 1\r\n\r") == [(None, b"1")]
    assert frames.feed(b"\ndata: 2\r\n\r\n") == [(None, b"2")]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: 1\n", []),
        (b"data: 1", []),
        (b"event: a\n\ndata: 1\n\n", [(None, b"1")]),
        (b"event: a\nevent: b\ndata: 1\n\n", [("b", b"1")]),
        (b"event: a\nevent:\ndata: 1\n\n", [(None, b"1")]),
        (b"data\n\n", [(None, b"")]),
        (b"data\ndata\n\n", [(None, b"\n")]),
        (b"data:1\n\n", [(None, b"1")]),
        (b"data:  1\n\n", [(None, b" 1")]),
        (b"data: a: b\n\n", [(None, b"a: b")]),
        (b"data: \xff\x00\n\n", [(None, b"\xff\x00")]),
        (b"event: \xff\ndata: 1\n\n", [("\ufffd", b"1")]),
        (b"data: 1\n\n\xef\xbb\xbfdata: 2\n\n", [(None, b"1")]),
        ("data: a\x0b\x1cb\x85\u2028c\n\n".encode(), [(None, "a\x0b\x1cb\x85\u2028c".encode())]),
    ],
)
def test_the_letter_of_the_rules(stream: bytes, expected: list[Frame]) -> None:
    assert read([stream]) == expected


def test_a_long_line_in_many_pieces_costs_no_more_than_its_bytes() -> None:
    frames = Frames()
    piece = b"x" * 1024
    frames.feed(b"data: ")
    for _ in range(16 * 1024):
        assert frames.feed(piece) == []
    assert frames.feed(b"\n\n") == [(None, piece * 16 * 1024)]
