"""Law 5: one reducer, and a materializer that joins stored bytes. Pure."""

import json
from typing import Any

import pytest
from counterfoil.types.v1 import runtime_pb2
from hypothesis import given
from hypothesis import strategies as st

from services.context.materializer import request_head, request_tail
from services.context.reducer import (
    HistoryCorruptError,
    OpenCallsError,
    reduce,
    rewrites,
    wanted_operations,
)
from tests.services.context.histories import (
    ABANDONED,
    WITHHELD,
    History,
    histories,
    projection,
    projection_of,
    text,
    use,
    written,
)


def messages_of(history: History) -> list[bytes]:
    return written(reduce(history.entries, history.projections).items)


def said(history: History) -> list[Any]:
    return [json.loads(message) for message in messages_of(history)]


@given(histories())
def test_a_longer_history_begins_with_the_messages_of_a_shorter_one(history: History) -> None:
    items = reduce(history.entries, history.projections).items
    whole = written(items)
    for count in range(len(items)):
        part = written(items[:count])
        assert whole[: len(part)] == part


@given(histories(), st.integers(0, 30))
def test_reducing_goes_on_where_it_stopped(history: History, at: int) -> None:
    first, rest = history.entries[:at], history.entries[at:]
    if rewrites(rest):
        return
    begun = reduce(first, history.projections)
    gone_on = reduce(rest, history.projections, open=begun.open)
    whole = reduce(history.entries, history.projections)
    assert begun.items + gone_on.items == whole.items
    assert gone_on.open == whole.open


@given(histories())
def test_every_message_is_json_and_every_call_has_its_result(history: History) -> None:
    used: list[str] = []
    for message in said(history):
        blocks = message["content"]
        assert blocks
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        assert results == used
        used = [b["id"] for b in blocks if b["type"] == "tool_use"]
        assert len(set(used)) == len(used)
        assert message["role"] == ("assistant" if used else message["role"])
        for block in blocks:
            if block["type"] == "text":
                assert block["text"].strip()
    assert used == []


def test_paused_and_cut_answers_keep_their_places() -> None:
    history = History().ask(text("a")).answer(text("b")).answer(text("c")).go_on()
    history.answer(text("d"))
    assert [(one["role"], one["content"][0]["text"]) for one in said(history)] == [
        ("user", "a"),
        ("assistant", "b"),
        ("assistant", "c"),
        ("user", "continue"),
        ("assistant", "d"),
    ]


def test_a_note_is_a_message_of_its_own_before_the_input() -> None:
    history = History().ask(text("a")).answer(use("c")).results(projection("interrupted"))
    history.answer(text("b")).note(text("it finished")).ask(text("d"))
    *_, note, asked = said(history)
    assert note == {"role": "user", "content": [{"type": "text", "text": "it finished"}]}
    assert asked["role"] == "user"
    skipped = [entry.id for entry in history.entries[-1:]]
    assert said(history.skip(WITHHELD, *skipped))[-1] == note


def test_a_note_between_a_call_and_its_result_is_refused() -> None:
    history = History().ask(text("a")).answer(use("c")).note()
    with pytest.raises(OpenCallsError):
        messages_of(history)


def test_blocks_travel_byte_for_byte() -> None:
    odd = b'{ "type":"thinking", "thinking":"\\u00e9\\uD83C\\uDF89","signature":"s", "n":1e400 }'
    unknown = b'{"zz":[2.0,18446744073709551616],"type":"later","deep":{"b":1,"a":2}}'
    history = History().ask(text("x")).answer(odd, unknown)
    assert (
        messages_of(history)[1] == b'{"role":"assistant","content":[' + odd + b"," + unknown + b"]}"
    )


def test_results_follow_in_use_order_under_the_providers_own_ids() -> None:
    history = History().ask().answer(text("I will"), use("toolu_\u00e9"), use("b"))
    history.results(projection("one", "two"), projection(is_error=True), trailing=(text("note"),))
    assert messages_of(history)[2] == (
        b'{"role":"user","content":['
        b'{"type":"tool_result","tool_use_id":"toolu_\\u00e9","content":'
        b'[{"type":"text","text":"one"},{"type":"text","text":"two"}]},'
        b'{"type":"tool_result","tool_use_id":"b","is_error":true},'
        b'{"type":"text","text":"note"}]}'
    )


def test_a_failure_projection_reads_as_its_fixed_text() -> None:
    history = History().ask().answer(use("a"))
    history.results(projection_of(b'{"code":"projection_too_large","kind":"failure","v":1}'))
    (result,) = said(history)[2]["content"]
    assert result["is_error"]
    assert "too large to be shown" in result["content"][0]["text"]


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u00a0\u2003"])
def test_what_the_provider_refuses_on_resend_is_left_out(blank: str) -> None:
    history = History().ask().answer(text(blank), use("a")).results(projection(blank))
    history.answer(text(blank)).ask(text("next"))
    messages = said(history)
    assert [m["role"] for m in messages] == ["user", "assistant", "user", "user"]
    assert [b["type"] for b in messages[1]["content"]] == ["tool_use"]
    assert messages[2]["content"] == [{"type": "tool_result", "tool_use_id": "a"}]


THOUGHTS = [
    b'{"type":"thinking","thinking":"So"}',
    b'{"type":"thinking","thinking":"So","signature":""}',
    b'{"type":"thinking","thinking":"So","signature":"s"}',
    b'{"type":"redacted_thinking","data":"d"}',
]


@pytest.mark.parametrize("thought", THOUGHTS)
def test_thinking_is_left_out_where_an_answer_ends_with_it(thought: bytes) -> None:
    history = History().ask().answer(thought, text("a"), thought, text(" "), thought)
    history.ask(text("next")).answer(thought).ask(text("last"))
    messages = messages_of(history)
    kept = b'{"role":"assistant","content":[%b,%b]}' % (thought, text("a"))
    assert messages[1] == kept
    assert [one["role"] for one in said(history)] == ["user", "assistant", "user", "user"]


def test_an_input_without_text_says_so() -> None:
    assert said(History().ask(text(" ")))[0]["content"] == [
        {"type": "text", "text": "(an empty message)"}
    ]


def test_a_second_call_under_one_id_is_left_out_with_its_result() -> None:
    history = History().ask().answer(use("a"), use("\\u0061"), use("b"))
    history.entries[-1].content.blocks[1] = use("a").replace(b'"a"', b'"\\u0061"', 1)
    history.results(projection("1"), projection("2"), projection("3"))
    messages = said(history)
    assert [b["id"] for b in messages[1]["content"]] == ["a", "b"]
    assert [b["content"][0]["text"] for b in messages[2]["content"]] == ["1", "3"]


@pytest.mark.parametrize("kind", [ABANDONED, WITHHELD])
def test_skipped_entries_are_not_seen_and_their_operations_not_asked_for(kind: Any) -> None:
    history = History().ask(text("kept")).answer(text("yes")).ask(text("gone")).answer(use("a"))
    history.results(projection("x")).skip(kind, "tent_3", "tent_4", "tent_5").ask(text("more"))
    assert wanted_operations(history.entries) == []
    history.projections.clear()
    assert [m["content"][0]["text"] for m in said(history)] == ["kept", "yes", "more"]


def test_history_does_not_go_on_over_an_open_call() -> None:
    history = History().ask().answer(use("a"))
    assert [one.id for one in reduce(history.entries, {}).open] == ["a"]
    with pytest.raises(OpenCallsError):
        reduce(history.ask().entries, {})


def test_results_must_answer_exactly_the_calls_before_them() -> None:
    history = History().ask().answer(use("a"), use("b"))
    history.results(projection("1"), projection("2"))
    del history.entries[-1].content.results[1]
    with pytest.raises(HistoryCorruptError):
        messages_of(history)


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h.projections.clear(),
        lambda h: h.projections.update({"op_2_0": projection("2")}),
        lambda h: h.entries[-1].ClearField("content"),
        lambda h: h.entries[1].content.blocks.__setitem__(0, b'{"type":"tool_use"}'),
        lambda h: h.entries[1].content.blocks.__setitem__(0, b"[]"),
    ],
)
def test_history_that_contradicts_itself_is_refused(change: Any) -> None:
    history = History().ask().answer(use("a")).results(projection("1"))
    assert messages_of(history)
    change(history)
    with pytest.raises(HistoryCorruptError):
        messages_of(history)


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"content","parts":[],"v":2}',
        b'{"kind":"content","parts":[{"kind":"artifact"}],"v":1}',
        b'{"kind":"json","v":1}',
        b"nonsense",
    ],
)
def test_a_projection_of_an_unknown_version_is_refused(body: bytes) -> None:
    history = History().ask().answer(use("a")).results(projection_of(body))
    with pytest.raises(HistoryCorruptError):
        messages_of(history)


def test_a_request_keeps_what_stays_the_same_in_front() -> None:
    schema = b'{ "type":"object", "maximum":1.10 }'
    runtime = runtime_pb2.SessionRuntime(
        model="m\u00e9",
        system='say "hi"',
        tools=[
            runtime_pb2.ToolBinding(name="t", description="d", input_schema=schema),
            runtime_pb2.ToolBinding(name="u", input_schema=b"{}"),
        ],
    )
    head = request_head(runtime, 8192)
    assert (
        head
        == (
            '{"model":"m\u00e9","max_tokens":8192,"system":"say \\"hi\\"","tools":['
            '{"name":"t","description":"d","input_schema":{ "type":"object", "maximum":1.10 }},'
            '{"name":"u","input_schema":{}}],"messages":['
        ).encode()
    )
    assert json.loads(head + request_tail(stream=True))["stream"] is True
    assert "stream" not in json.loads(head + request_tail(stream=False))
    plain = request_head(runtime_pb2.SessionRuntime(model="m"), 1)
    assert plain == b'{"model":"m","max_tokens":1,"messages":['
