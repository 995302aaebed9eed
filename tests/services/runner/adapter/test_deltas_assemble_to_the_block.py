"""However a stream splits a block, it assembles to the bytes of the whole block. Pure."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runner.adapter.assemble import Assembly, whole
from services.runner.adapter.failures import ProviderFailure, UnknownDelta
from tests.services.runner.adapter.support import (
    BEGIN,
    END,
    assembled,
    delta,
    frame,
    object_of,
    pieces,
    start,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
RAWS = st.sampled_from(
    [b"1.10", b"1e400", b"-0.0", b"null", b'"\\u00e9\\/"', b'{"b":1, "a":[ 2 ]}', b"[]", b"9" * 40]
)
EXTRA = st.dictionaries(st.sampled_from(["zz", "caller", "b", "a"]), RAWS, max_size=3)


@st.composite
def objects(draw: st.DrawFn) -> str:
    """An input as a model spells it."""
    parts = draw(st.dictionaries(TEXTS, RAWS, max_size=3))
    space = draw(st.sampled_from(["", " ", "\n  "]))
    body = ",".join(
        f"{space}{msgspec.json.encode(key).decode()}:{space}{raw.decode()}"
        for key, raw in parts.items()
    )
    return "{" + body + space + "}"


def split(draw: st.DrawFn, text: str) -> list[str]:
    cuts = draw(st.lists(st.integers(0, len(text)), max_size=4).map(sorted))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


Frames = list[dict[str, object]]


@st.composite
def blocks(draw: st.DrawFn) -> tuple[bytes, bytes, Frames]:
    """A whole block, how a stream opens it, and the deltas that complete it."""
    extra = draw(EXTRA)
    kind = draw(st.sampled_from(["text", "cited", "thinking", "tool_use", "unknown"]))
    encode = msgspec.json.encode
    done: dict[str, bytes]
    opened: dict[str, bytes]
    deltas: Frames
    if kind in ("text", "cited"):
        text = draw(TEXTS)
        done, opened = {"text": encode(text)}, {"text": b'""'}
        deltas = [{"type": "text_delta", "text": piece} for piece in split(draw, text)]
        if kind == "cited":
            cited = draw(st.lists(RAWS, max_size=3))
            done["citations"], opened["citations"] = b"[%s]" % b",".join(cited), b"[]"
            deltas += [{"type": "citations_delta", "citation": msgspec.Raw(c)} for c in cited]
        kind = "text"
    elif kind == "thinking":
        text, signature = draw(TEXTS), draw(TEXTS)
        done = {"thinking": encode(text), "signature": encode(signature)}
        opened = {"thinking": b'""', "signature": b'""'}
        deltas = [{"type": "thinking_delta", "thinking": p} for p in split(draw, text)]
        deltas.append({"type": "signature_delta", "signature": signature})
    elif kind == "tool_use":
        text = draw(objects())
        done = {"id": b'"t1"', "name": b'"n"', "input": text.encode()}
        opened = {**done, "input": b"{}"}
        deltas = [{"type": "input_json_delta", "partial_json": p} for p in split(draw, text)]
    else:
        done, deltas = {"payload": draw(RAWS)}, []
        opened = done
    head = {"type": encode(kind)}
    return object_of({**head, **extra, **done}), object_of({**head, **extra, **opened}), deltas


@given(st.lists(blocks(), max_size=4), st.booleans())
def test_any_split_gives_the_whole_block(
    found: list[tuple[bytes, bytes, Frames]], interleaved: bool
) -> None:
    message = b'{"id":"msg_1","content":[%s],"stop_reason":null}' % b",".join(
        b for b, _, _ in found
    )
    starts = [start(index, opened) for index, (_, opened, _) in enumerate(found)]
    grown = [[delta(index, **one) for one in deltas] for index, (_, _, deltas) in enumerate(found)]
    if interleaved:
        longest = max(map(len, grown), default=0)
        turns = [many[at] for at in range(longest) for many in grown if at < len(many)]
        frames = [*starts, *turns]
    else:
        frames = [one for first, many in zip(starts, grown, strict=True) for one in (first, *many)]
    streamed = assembled(*frames)
    assert streamed.blocks == tuple(block for block, _, _ in found)
    assert streamed == whole(message, "req_1")


def test_nothing_added_leaves_the_bytes_of_the_start() -> None:
    odd = b'{ "type":"text", "text" : "\\u0041", "x": 1.10 }'
    assert assembled(start(0, odd), delta(0, type="text_delta", text="")).blocks == (odd,)


def test_text_at_the_start_comes_before_the_deltas() -> None:
    frames = start(0, b'{"type":"text","text":"a"}'), delta(0, type="text_delta", text="b")
    assert assembled(*frames).blocks == (b'{"type":"text","text":"ab"}',)
    assert [piece.text for piece in pieces([BEGIN, *frames])] == ["", "a", "b"]


def test_citations_join_those_of_the_start_and_replace_null() -> None:
    one = delta(0, type="citations_delta", citation={"n": 2})
    opened = b'{"type":"text","text":"a","citations":[{"n":1.10}]}'
    assert assembled(start(0, opened), one).blocks == (
        b'{"type":"text","text":"a","citations":[{"n":1.10},{"n":2}]}',
    )
    opened = b'{"type":"text","text":"a","citations":null}'
    assert assembled(start(0, opened), one).blocks == (
        b'{"type":"text","text":"a","citations":[{"n":2}]}',
    )


def test_members_that_the_start_lacks_are_appended() -> None:
    frames = (
        start(0, b'{"type":"thinking"}'),
        delta(0, type="thinking_delta", thinking="t"),
        delta(0, type="signature_delta", signature="s"),
    )
    assert assembled(*frames).blocks == (b'{"type":"thinking","thinking":"t","signature":"s"}',)


def test_the_envelope_merges_what_comes_later() -> None:
    begin = frame(
        "message_start",
        message=b'{"id":"m","x":1.10,"content":[],"stop_reason":null,"usage":'
        b'{"input_tokens":5,"cache":{"n":1.10},"output_tokens":1}}',
    )
    first = frame(
        "message_delta",
        delta=b'{"stop_reason":"end_turn","container":{"z":1e400}}',
        usage=b'{"output_tokens":9,"input_tokens":null,"new":[1.10]}',
    )
    second = frame("message_delta", delta=b'{"stop_reason":"tool_use"}', beside=b"1.10")
    answer = assembled(first, second, begin=begin)
    assert answer.envelope == (
        b'{"id":"m","x":1.10,"stop_reason":"tool_use","usage":'
        b'{"input_tokens":5,"cache":{"n":1.10},"output_tokens":9,"new":[1.10]},'
        b'"container":{"z":1e400},"beside":1.10}'
    )
    assert answer.stop_reason == "tool_use"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (5, 9)


def test_counts_that_are_no_counts_are_zero() -> None:
    usage = b'{"input_tokens":1.5,"output_tokens":-1,"cache_read_input_tokens":1e400}'
    begin = frame("message_start", message=b'{"content":[],"usage":%s}' % usage)
    answer = assembled(begin=begin)
    assert answer.usage.ByteSize() == 0
    assert answer.envelope == b'{"usage":%s}' % usage


def test_frames_without_event_names_are_read_by_their_type() -> None:
    assembly = Assembly()
    for _, data in (BEGIN, start(0, b'{"type":"text","text":"a"}'), END):
        assembly.feed(None, data)
    assert assembly.answer().blocks == (b'{"type":"text","text":"a"}',)


def test_unknown_events_and_everything_behind_the_end_count_for_nothing() -> None:
    assembly = Assembly()
    for event, data in (BEGIN, ("weather", b"not json"), ("ping", b""), END, ("error", b"{}")):
        assembly.feed(event, data)
    assert assembly.answer().blocks == ()


def test_an_unknown_delta_type() -> None:
    with pytest.raises(UnknownDelta):
        assembled(start(0, b'{"type":"text","text":""}'), delta(0, type="packed_delta", x=1))


TEXT = b'{"type":"text","text":""}'
BROKEN: dict[str, list[tuple[str, bytes]]] = {
    "a gap between blocks": [start(1, TEXT)],
    "a block twice": [start(0, TEXT), start(0, TEXT)],
    "a delta without block": [delta(0, type="text_delta", text="x")],
    "a delta without text": [start(0, TEXT), delta(0, type="text_delta")],
    "a delta that is no object": [
        start(0, TEXT),
        frame("content_block_delta", index=b"0", delta=b"1"),
    ],
    "an index that is no number": [frame("content_block_start", index=b"true", content_block=TEXT)],
    "a second beginning": [BEGIN],
    "a duplicate key": [start(0, b'{"type":"text","type":"text"}')],
    "half a surrogate pair": [start(0, b'{"type":"text","text":"\\ud83d"}')],
    "too many levels": [start(0, b"[" * 64 + b"]" * 64)],
    "invalid UTF-8": [start(0, b'"\xff"')],
    "a call without id": [start(0, b'{"type":"tool_use","name":"n","input":{}}')],
    "a call with an endless id": [
        start(0, b'{"type":"tool_use","id":"%s","name":"n"}' % (b"x" * 2000))
    ],
    "a call without name": [start(0, b'{"type":"tool_use","id":"t","name":""}')],
}


@pytest.mark.parametrize("frames", BROKEN.values(), ids=BROKEN.keys())
def test_what_cannot_be_stored_is_refused(frames: list[tuple[str, bytes]]) -> None:
    with pytest.raises(ProviderFailure) as caught:
        assembled(*frames)
    assert caught.value.kind == "bad_answer"


def test_no_beginning_and_no_end() -> None:
    with pytest.raises(ProviderFailure) as caught:
        Assembly().feed(*start(0, TEXT))
    assert caught.value.kind == "bad_answer"
    assembly = Assembly()
    for event, data in (BEGIN, start(0, TEXT)):
        assembly.feed(event, data)
    with pytest.raises(ProviderFailure) as caught:
        assembly.answer()
    assert caught.value.kind == "truncated"


def test_an_error_with_status_200_is_a_failure() -> None:
    error = b'{"type":"error","error":{"type":"overloaded_error","message":"m"}}'
    with pytest.raises(ProviderFailure) as caught:
        whole(error)
    assert caught.value.kind == "overloaded"
