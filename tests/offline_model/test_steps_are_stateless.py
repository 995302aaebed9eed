"""The same request meets the same step, whoever repeats it and after any restart."""

import json
from pathlib import Path
from typing import Any

from tests.offline_model.support import Server, assistant, result, running, script, use, user


def texts(answer: Any) -> list[str]:
    return [block["text"] for block in answer["content"]]


def test_the_index_counts_assistant_messages_behind_the_script(server: Server) -> None:
    start = script("one", "two", "three")
    history: list[Any] = ["before", assistant("x"), start]
    assert texts(server.say(*history)) == ["one"]
    assert texts(server.say(*history)) == ["one"]
    history += [assistant("one"), "go on"]
    assert texts(server.say(*history)) == ["two"]
    history += [assistant([use("a")]), user([result("a")])]
    assert texts(server.say(*history)) == ["three"]
    history += [assistant("three"), "and now"]
    assert "and now" in texts(server.say(*history))[0]
    history += [assistant("x"), script("newest")]
    assert texts(server.say(*history)) == ["newest"]


def test_a_script_may_stand_behind_results_in_one_message(server: Server) -> None:
    content = [result("a"), {"type": "text", "text": script("from the block")}]
    assert texts(server.say("x", assistant([use("a")]), user(content))) == ["from the block"]


def test_scenarios_count_all_assistant_messages(server: Server) -> None:
    assert server.scenarios
    (server.scenarios / "two-turns.json").write_text(
        '["first", {"content": ["second"], "stop_reason": "max_tokens"}]'
    )
    (server.scenarios / "small.json").write_text('{"window_tokens": 2, "steps": ["never"]}')
    model = {"model": "offline/two-turns"}
    assert texts(server.say("x", **model)) == ["first"]
    assert server.say("x", assistant("first"), "y", **model)["stop_reason"] == "max_tokens"
    small = server.say("x", model="offline/small")
    assert "prompt is too long" in small["error"]["message"]
    for unknown in ("offline/none", "offline/../two-turns", "offline/"):
        assert server.say("x", model=unknown)["error"]["type"] == "not_found_error"


def test_times_limits_faults_to_the_first_requests(server: Server) -> None:
    start = script({"error": {"status": 529}, "times": 2, "content": ["at last"]})
    kinds = [server.say(start)["type"] for _ in range(4)]
    assert kinds == ["error", "error", "message", "message"]


def test_answers_and_seals_survive_a_restart(tmp_path: Path) -> None:
    step = {
        "content": [
            {"type": "thinking", "thinking": "deep"},
            {"type": "redacted_thinking"},
            {"type": "tool_use", "name": "t", "input": {}},
        ]
    }
    start = script(step, "accepted")
    with running(tmp_path) as server:
        first = server.say(start)
    with running(tmp_path) as server:
        again = server.say(start)
        assert again["content"] == first["content"]
        assert again["id"] != first["id"]
        answered = user([result(first["content"][2]["id"])])
        assert texts(server.say(start, assistant(first["content"]), answered)) == ["accepted"]
        assert server.process.poll() is None
    assert server.process.returncode == 0
    numbers = sorted(int(file.stem) for file in tmp_path.glob("*.json"))
    lines = [json.loads(line) for line in (tmp_path / "index.jsonl").read_text().splitlines()]
    assert numbers == [line["seq"] for line in lines] == [1, 2, 3]


def test_a_result_may_carry_what_comes_next(server: Server) -> None:
    """So a script goes on although everything before the newest result was replaced."""
    call = {"type": "tool_use", "name": "t"}
    first = script({"content": [call]}, {"content": ["old"]})
    next_ = [{"type": "text", "text": script({"content": ["new"]})}, {"type": "text", "text": "…"}]
    history = [assistant([use("a"), use("b")]), user([result("a"), result("b", next_)])]
    assert server.say(first, *history)["content"][0]["text"] == "new"
    assert server.say("a summary", *history)["content"][0]["text"] == "new"
    plain = [assistant([use("a")]), user([result("a", "no script")])]
    assert server.say(first, *plain)["content"][0]["text"] == "old"
