"""Requests that the real API refuses are refused, in its words; what it takes is taken."""

import json
from typing import Any

import pytest

from offline_model.seals import signature
from tests.offline_model.support import (
    Server,
    assistant,
    request,
    result,
    script,
    use,
    user,
)

REFUSED: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("no messages", [], {}, "messages: at least one message is required"),
    ("assistant first", [assistant("x")], {}, 'messages: first message must use the "user" role'),
    ("odd role", ["x", {"role": "tool", "content": "y"}], {}, "messages.1.role: "),
    ("empty text", [user([{"type": "text", "text": ""}])], {}, "blocks must be non-empty"),
    ("blank text", [user(" \n")], {}, "must contain non-whitespace text"),
    (
        "empty nested text",
        ["x", assistant([use("a")]), user([result("a", [{"type": "text", "text": ""}])])],
        {},
        "non-empty",
    ),
    (
        "empty content",
        ["x", assistant([]), "y"],
        {},
        "messages.1: all messages must have non-empty",
    ),
    ("trailing space", ["x", assistant("y ")], {}, "cannot end with trailing whitespace"),
    (
        "unanswered",
        ["x", assistant([use("a"), use("b")]), user([result("a")])],
        {},
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: b.",
    ),
    (
        "ends with thinking",
        ["x", assistant([{"type": "thinking", "thinking": "t", "signature": signature("t")}]), "y"],
        {},
        "messages.1: The final block in an assistant message cannot be `thinking`.",
    ),
    ("unanswered at the end", ["x", assistant([use("a")])], {}, "immediately after: a."),
    (
        "results behind text",
        ["x", assistant([use("a")]), user([{"type": "text", "text": "t"}, result("a")])],
        {},
        "immediately after: a.",
    ),
    (
        "results too late",
        ["x", assistant([use("a")]), "y", user([result("a")])],
        {},
        "messages.3.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a.",
    ),
    (
        "unknown id",
        ["x", assistant([use("a")]), user([result("a"), result("z")])],
        {},
        "messages.2.content.1: unexpected `tool_use_id` found",
    ),
    (
        "two results",
        ["x", assistant([use("a")]), user([result("a"), result("a")])],
        {},
        "messages.2.content.1: each tool_use must have a single result.",
    ),
    (
        "equal ids",
        ["x", assistant([use("a"), use("a")]), user([result("a")])],
        {},
        "messages.1.content.1: `tool_use` ids must be unique",
    ),
    ("result in assistant", ["x", assistant([result("a")])], {}, "can only be in `user` messages"),
    ("use in user", [user([use("a")])], {}, "can only be in `assistant` messages"),
    (
        "unsigned thinking",
        ["x", assistant([{"type": "thinking", "thinking": "y"}]), "z"],
        {},
        "messages.1.content.0.thinking.signature: Field required",
    ),
    (
        "foreign signature",
        ["x", assistant([{"type": "thinking", "thinking": "y", "signature": "c2ln"}]), "z"],
        {},
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    (
        "orphan search result",
        [
            "x",
            assistant([{"type": "web_search_tool_result", "tool_use_id": "s", "content": []}]),
            "y",
        ],
        {},
        "unexpected `tool_use_id` found in `web_search_tool_result` blocks: s.",
    ),
    (
        "search without result",
        [
            "x",
            assistant([{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]),
            "y",
        ],
        {},
        "`web_search` tool use with id `s` was found without",
    ),
    ("system first", [{"role": "system", "content": "s"}], {}, "first message"),
    (
        "system before user",
        ["x", {"role": "system", "content": "s"}, "y"],
        {},
        "messages.1: a `system`",
    ),
    ("no max_tokens", ["x"], {"max_tokens": None}, "max_tokens: Field required"),
    ("max_tokens 0", ["x"], {"max_tokens": 0}, "max_tokens: Input should be greater"),
    ("unknown member", ["x"], {"maxTokens": 1}, "maxTokens: Extra inputs are not permitted"),
    (
        "tool twice",
        ["x"],
        {"tools": [{"name": "t", "input_schema": {}}] * 2},
        "Tool names must be unique",
    ),
    ("tool name", ["x"], {"tools": [{"name": "a b", "input_schema": {}}]}, "tools.0.custom.name"),
    (
        "tool schema",
        ["x"],
        {"tools": [{"name": "a"}]},
        "tools.0.custom.input_schema: Field required",
    ),
    (
        "text is no text",
        [user([{"type": "text"}])],
        {},
        "messages.0.content.0.text.text: Field required",
    ),
    ("content is a number", [user(5)], {}, "messages.0.content: "),
]


@pytest.mark.parametrize(
    ("messages", "more", "message"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_refused(server: Server, messages: list[Any], more: dict[str, Any], message: str) -> None:
    body = {k: v for k, v in request(*messages, **more).items() if v is not None}
    response = server.raw(json.dumps(body).encode())
    answer = response.json()
    assert response.status_code == 400, answer
    assert answer["type"] == "error"
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["request_id"] == response.headers["request-id"]
    assert message in answer["error"]["message"]


SEARCH = [
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
]
TEXT = {"type": "text", "text": "t"}
MYSTERY = {"type": "mystery", "text": 5, "id": None, "z": 1e40}
RESULT = user([result("a")])
ACCEPTED: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("repeated roles", ["x", "y", assistant("a"), assistant("b"), "z"], {}),
    ("text behind results", ["x", assistant([use("a")]), user([result("a"), TEXT])], {}),
    ("any order", ["x", assistant([use("a"), use("b")]), user([result("b"), result("a", "")])], {}),
    ("ids of another round", ["x", *[assistant([use("a")]), RESULT] * 2], {}),
    ("unknown blocks", ["x", assistant([MYSTERY]), user([{"type": "odd"}])], {}),
    ("search with result", ["x", assistant(SEARCH), "y"], {}),
    ("paused search", ["x", assistant(SEARCH[:1])], {}),
    ("went on", ["x", assistant(SEARCH[:1]), assistant([*SEARCH[1:], TEXT]), "y"], {}),
    ("system after user", ["x", {"role": "system", "content": "s"}], {}),
    ("server tool", ["x"], {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
    ("unknown model", ["x"], {"model": "no-such-model"}),
]


@pytest.mark.parametrize(
    ("messages", "more"), [case[1:] for case in ACCEPTED], ids=[case[0] for case in ACCEPTED]
)
def test_accepted(server: Server, messages: list[Any], more: dict[str, Any]) -> None:
    assert server.say(*messages, **more)["type"] == "message"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"model":"m"} x',
        b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"\xff"}]}',
        b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"\\ud83d"}]}',
        b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"assistant"'
        b',"content":[{"type":"tool_use","id":"a","name":"t","input":{"x":"\\ud99c"}}]}]}',
        b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"\\udc00"}]}',
        b'{"model":"m","max_tokens":1,"messages":' + b"[" * 200_000,
    ],
)
def test_what_is_no_json_is_refused(server: Server, body: bytes) -> None:
    response = server.raw(body)
    assert response.status_code == 400
    assert "not valid JSON" in response.json()["error"]["message"]


def test_a_missing_credential_is_401_and_a_missing_version_400(server: Server) -> None:
    url = "/v1/messages"
    body = json.dumps(request("x")).encode()
    refused = server.http.post(url, content=body, headers={"anthropic-version": "2023-06-01"})
    assert refused.status_code == 401
    assert refused.json()["error"]["type"] == "authentication_error"
    assert server.http.post(url, content=body, headers={"x-api-key": "k"}).status_code == 400
    assert server.http.get(url, headers={"x-api-key": "k"}).status_code == 405
    assert server.http.post("/v1/nothing", content=b"").status_code == 404


def test_a_script_that_is_wrong_says_where(server: Server) -> None:
    for steps, where in (
        ([{"contnet": []}], "inline: step 0"),
        ([{"content": [{"type": 5}]}], "script: content.0"),
    ):
        answer = server.say(script(*steps))
        assert where in answer["error"]["message"]
