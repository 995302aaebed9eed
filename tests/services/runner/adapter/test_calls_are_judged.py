"""A model's mistakes become texts for the model; what may run is named with its tool. Pure."""

import msgspec
import pytest
from counterfoil.types.v1 import runtime_pb2

from services.runner import answer
from services.runner.answer import Segment, Verdict


def tool(name: str, owner: int = runtime_pb2.TOOL_OWNER_CLIENT_CUSTOM) -> runtime_pb2.ToolBinding:
    return runtime_pb2.ToolBinding(
        name=name,
        owner=runtime_pb2.ToolOwner.Name(owner),  # pyright: ignore[reportArgumentType]
        policy=runtime_pb2.TOOL_POLICY_ALWAYS_ALLOW,
    )


TOOLS = [
    tool("decide"),
    tool("escalate"),
    tool("web_search", runtime_pb2.TOOL_OWNER_PROVIDER_NATIVE),
]


def use(name: str = "decide", id: str = "t1", input: str = "{}") -> bytes:
    head = msgspec.json.encode({"type": "tool_use", "id": id, "name": name})
    return head[:-1] + b',"input":' + input.encode() + b"}"


def judged(*blocks: bytes, stop_reason: str = "tool_use") -> list[Verdict]:
    return answer.judge(answer.calls_of(blocks), stop_reason, TOOLS)


def test_calls_keep_place_and_exact_input() -> None:
    text = b'{"type":"text","text":"x"}'
    calls = answer.calls_of([text, use(input='{"z": 1.10, "a":1e400}'), b'"odd"', use(id="t2")])
    assert [(call.block_index, call.provider_id) for call in calls] == [(1, "t1"), (3, "t2")]
    assert calls[0].input == b'{"z": 1.10, "a":1e400}'
    assert calls[0].malformed is None


@pytest.mark.parametrize("type_", ["server_tool_use", "mcp_tool_use", "tool_result", "novel"])
def test_only_client_calls_are_calls(type_: str) -> None:
    assert answer.calls_of([use().replace(b"tool_use", type_.encode())]) == []


def test_a_call_that_may_run_has_its_tool() -> None:
    first, second = judged(use("escalate"), use(id="t2"))
    assert (first.binding, first.refusal) == (TOOLS[1], "")
    assert (second.binding, second.refusal) == (TOOLS[0], "")


@pytest.mark.parametrize("name", ["delete_everything", "", "Decide", "web_search"])
def test_an_unknown_tool_is_refused_by_naming_the_tools(name: str) -> None:
    (verdict,) = judged(use(name))
    assert verdict.binding is None
    assert verdict.refusal.endswith("The tools are: decide, escalate.")


def test_refusals_stay_short() -> None:
    many = [tool(f"tool_{n:03}_{'x' * 100}") for n in range(256)]
    (verdict,) = answer.judge(answer.calls_of([use("n" * 1000)]), "tool_use", many)
    assert len(verdict.refusal) < 5000
    assert verdict.refusal.endswith(", ….")
    (verdict,) = answer.judge(answer.calls_of([use()]), "tool_use", [])
    assert "no tools are offered" in verdict.refusal


@pytest.mark.parametrize("input", ["[1]", '"x"', "null", "1.10"])
def test_an_input_that_is_no_object_is_refused(input: str) -> None:
    (verdict,) = judged(use(input=input))
    assert verdict.binding == TOOLS[0]
    assert verdict.refusal == "The call was not made: its input is not a JSON object."


def test_an_unreadable_input_is_refused_with_the_place() -> None:
    (verdict,) = judged(use(input='{"INVALID_JSON":"{\\"a\\": 1,"}'))
    assert "not valid JSON" in verdict.refusal
    assert "the document ends" in verdict.refusal
    (verdict,) = judged(use(input='{"INVALID_JSON":"[1]"}'))
    assert verdict.refusal == "The call was not made: its input is not a JSON object."
    (verdict,) = judged(use(input='{"INVALID_JSON":{}}'))
    assert not verdict.refusal


def test_equal_ids_are_refused_all() -> None:
    verdicts = judged(use(id="same"), use(id="own"), use("escalate", id="same"))
    assert [bool(verdict.refusal) for verdict in verdicts] == [True, False, True]
    assert "same id" in verdicts[0].refusal


@pytest.mark.parametrize("stop_reason", ["end_turn", "stop_sequence", "refusal"])
def test_a_contradictory_stop_reason_refuses_every_call(stop_reason: str) -> None:
    verdicts = judged(use(), use(id="t2"), stop_reason=stop_reason)
    assert all(f"stop reason {stop_reason}" in verdict.refusal for verdict in verdicts)


@pytest.mark.parametrize("stop_reason", ["tool_use", "pause_turn", "", "novel"])
def test_other_stop_reasons_let_calls_run(stop_reason: str) -> None:
    assert [v.refusal for v in judged(use(), use(id="t2"), stop_reason=stop_reason)] == ["", ""]


def test_no_call_runs_whose_result_the_full_window_cannot_hold() -> None:
    verdicts = judged(use(), use(id="t2"), stop_reason="model_context_window_exceeded")
    assert all("window is full" in verdict.refusal for verdict in verdicts)


def test_only_the_last_call_of_a_cut_answer_may_be_incomplete() -> None:
    first, second = judged(use(), use(id="t2"), stop_reason="max_tokens")
    assert first.refusal == ""
    assert "cut off" in second.refusal


@pytest.mark.parametrize("stop_reason", ["tool_use", "end_turn", ""])
def test_no_calls_no_verdicts(stop_reason: str) -> None:
    assert judged(b'{"type":"text","text":"x"}', stop_reason=stop_reason) == []


def test_segments() -> None:
    text, thinking = b'{"type":"text","text":"%s"}', b'{"type":"%s"}'
    blocks = [
        thinking % b"thinking",
        text % b"a",
        text % b"",
        use(),
        text % b"b",
        thinking % b"redacted_thinking",
        text % b"c\\u0000",
        thinking % b"hologram",
        b'{"type":"text","text":5}',
        b'["no object"]',
        text % b"d",
    ]
    assert answer.segments_of(blocks) == [
        Segment(0, "thinking"),
        Segment(1, "message", ("a", "")),
        Segment(4, "message", ("b",)),
        Segment(5, "thinking"),
        Segment(6, "message", ("c\0",)),
        Segment(10, "message", ("d",)),
    ]
    assert answer.segments_of([]) == []


@pytest.mark.parametrize(
    ("envelope", "stop_reason"),
    [(b'{"stop_reason":"end_turn"}', "end_turn"), (b'{"stop_reason":null}', ""), (b"{}", "")],
)
def test_stop_reason_of(envelope: bytes, stop_reason: str) -> None:
    assert answer.stop_reason_of(envelope) == stop_reason


@pytest.mark.parametrize("envelope", [b"{}", b'{"usage":null}', b'{"usage":{"input_tokens":null}}'])
def test_usage_that_was_not_reported_is_zero(envelope: bytes) -> None:
    assert answer.usage_of(envelope).ByteSize() == 0
