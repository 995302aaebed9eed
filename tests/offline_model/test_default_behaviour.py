"""Without a script the model is of use: it talks, calls tools, and plays the expense gate."""

import json
from typing import Any

import pytest

from offline_model import expense
from tests.offline_model.support import Server, assistant, result, user

GATE: list[Any] = [
    {"name": name, "description": "d", "input_schema": {"type": "object"}}
    for name in ("decide", "escalate")
]
WORDINGS = [
    "Please process:\n- r01: USD 24.50, team lunch, itemized receipt attached\n"
    "- r02: USD 900, client dinner, no itemized receipt",
    "Two receipts. r01 is a $12 taxi with a clear receipt; r02 is $900 and the purpose is unclear.",
    '[{"receipt_id":"r01","amount":"USD 12"},{"receipt_id":"r02","amount":"USD 900"}]',
    '{"receipts":[\n {"amount":"EUR 18.20","id":"r01","note":"train"},\n'
    ' {"amount":"EUR 18.20","id":"r02","note":"handwritten, illegible"}\n]}',
    "Receipt r01: coffee. Receipt r02: coffee.",
]


def calls(answer: Any) -> list[tuple[str, str]]:
    used = [block for block in answer["content"] if block["type"] == "tool_use"]
    return [(block["name"], block["input"]["receipt_id"]) for block in used]


@pytest.mark.parametrize("wording", WORDINGS)
def test_the_gate_decides_the_clear_and_escalates_the_doubtful(
    server: Server, wording: str
) -> None:
    answer = server.say(wording, tools=GATE)
    assert calls(answer) == [("decide", "r01"), ("escalate", "r02")]
    assert answer["stop_reason"] == "tool_use"


def test_the_gate_sums_up_what_was_recorded(server: Server) -> None:
    asked = server.say(WORDINGS[0], tools=GATE)
    ids = [block["id"] for block in asked["content"] if block["type"] == "tool_use"]
    results = [
        result(ids[0], json.dumps({"recorded": True, "receipt_id": "r01", "decision": "approve"})),
        result(
            ids[1],
            [{"type": "text", "text": '{"recorded":true,"human_decision":"reject"}'}],
        ),
    ]
    answer = server.say(WORDINGS[0], assistant(asked["content"]), user(results), tools=GATE)
    lines = answer["content"][0]["text"].splitlines()
    assert lines[0] == "Summary of recorded outcomes:"
    assert lines[1].startswith("Receipt r01: Approved.")
    assert lines[2].startswith("Receipt r02: Rejected (after human review).")
    assert answer["stop_reason"] == "end_turn"
    failed = [{**results[0], "is_error": True, "content": "interrupted"}, results[1]]
    told = server.say(WORDINGS[0], assistant(asked["content"]), user(failed), tools=GATE)
    assert "Receipt r01: Not recorded: interrupted" in told["content"][0]["text"]


def test_seven_receipts_get_seven_calls_in_order() -> None:
    text = "\n".join(f"r0{n}: USD {n}, {'unclear' if n % 2 else 'documented'}" for n in range(1, 8))
    made = expense.calls(expense.receipts(text))
    ids = [json.loads(input)["receipt_id"] for _, input in made]
    assert ids == [f"r0{n}" for n in range(1, 8)]
    assert [tool for tool, _ in made] == ["escalate", "decide"] * 3 + ["escalate"]


def test_a_named_tool_is_called_with_the_given_or_an_example_input(server: Server) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    }
    tools = [
        {"name": name, "description": "d", "input_schema": schema}
        for name in ("weather", "weather_map")
    ]
    answer = server.say("Please use weather_map.", tools=tools)
    called = answer["content"][1]
    assert (called["name"], called["input"]) == ("weather_map", {"city": "example", "days": 1})
    exact = server.say('use weather {"city": "Bonn } x", "n": 1.10} now', tools=tools)
    assert exact["content"][1]["input"] == {"city": "Bonn } x", "n": 1.10}
    told = server.say(
        "Please use weather_map.",
        assistant(answer["content"]),
        user([result(called["id"], "sunny")]),
        tools=tools,
    )
    assert "weather_map answered: sunny" in told["content"][0]["text"]


def test_plain_text_is_answered_with_reference_to_it(server: Server) -> None:
    assert "What is a counterfoil?" in server.say("What is a counterfoil?")["content"][0]["text"]
    assert server.say("hello", tools=GATE)["stop_reason"] == "end_turn"


def test_asked_for_sections_it_writes_them(server: Server) -> None:
    asked = "Write these sections:\n\n## Goals\n## Open work"
    said = server.say("hello", assistant("hi"), asked)["content"][0]["text"]
    line = "- What 3 messages said about it, as the offline model understood them."
    assert said == f"## Goals\n{line}\n\n## Open work\n{line}"
    assert "You wrote" in server.say("## One heading")["content"][0]["text"]
