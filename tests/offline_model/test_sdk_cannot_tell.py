"""The official SDK, streamed and not, sync and async, meets what it expects."""

import json
from typing import Any

import anthropic
import pytest

from tests.offline_model.support import MODEL, Server, result, script, user

TOOL: Any = {"name": "t", "description": "d", "input_schema": {"type": "object"}}
RICH: Any = {
    "content": [
        {"type": "thinking", "thinking": "Let me think about it, for longer than one piece."},
        {"type": "redacted_thinking"},
        {
            "type": "server_tool_use",
            "name": "web_search",
            "input": {"query": "weather"},
        },
        {
            "type": "web_search_tool_result",
            "content": [{"url": "https://example.com", "title": "Example"}],
        },
        {
            "type": "text",
            "text": "Grüße 🎉 \x00 end",
            "citations": [
                {
                    "type": "web_search_result_location",
                    "cited_text": "x",
                    "encrypted_index": "e",
                    "title": "Example",
                    "url": "https://example.com",
                }
            ],
        },
        {"type": "tool_use", "name": "t", "input": {"a": [1, {"b": "ü"}]}},
    ],
    "usage": {"cache_read_input_tokens": 7, "cache_creation_input_tokens": 3},
    "chunk_chars": 3,
}


def plain(blocks: Any) -> list[dict[str, Any]]:
    """Blocks as JSON, without what the SDK adds while it parses."""
    dumped = [block.to_dict() for block in blocks]
    return [{k: v for k, v in block.items() if k != "parsed_output"} for block in dumped]


@pytest.mark.parametrize("step", [RICH, "Hello!", {"content": []}])
async def test_streamed_and_unstreamed_answers_are_equal(server: Server, step: Any) -> None:
    messages: Any = [user(script(step))]
    whole = server.sdk.messages.create(model=MODEL, max_tokens=10, messages=messages, tools=[TOOL])
    with server.sdk.messages.stream(
        model=MODEL, max_tokens=10, messages=messages, tools=[TOOL]
    ) as stream:
        streamed = stream.get_final_message()
    async with server.async_client() as client:
        later = await client.messages.create(
            model=MODEL, max_tokens=10, messages=messages, tools=[TOOL]
        )
        async with client.messages.stream(
            model=MODEL, max_tokens=10, messages=messages, tools=[TOOL]
        ) as async_stream:
            async_streamed = await async_stream.get_final_message()
    assert plain(whole.content) == plain(streamed.content)
    assert plain(later.content) == plain(async_streamed.content) == plain(whole.content)
    assert whole.stop_reason == streamed.stop_reason
    assert whole.usage == streamed.usage
    assert len({whole.id, streamed.id, later.id, async_streamed.id}) == 4
    assert whole._request_id != later._request_id


def test_a_thinking_answer_is_accepted_again_and_refused_when_it_was_changed(
    server: Server,
) -> None:
    client = server.sdk
    start: Any = user(script(RICH, "Fine."))
    first = client.messages.create(model=MODEL, max_tokens=10, messages=[start], tools=[TOOL])
    content: Any = plain(first.content)
    answered: Any = user([result(content[-1]["id"])])

    def send(blocks: Any) -> Any:
        messages: Any = [start, {"role": "assistant", "content": blocks}, answered]
        return client.messages.create(model=MODEL, max_tokens=10, messages=messages, tools=[TOOL])

    assert send(content).content[0].text == "Fine."
    assert send(content[1:]).content[0].text == "Fine."
    for block, member in ((0, "thinking"), (0, "signature"), (1, "data")):
        changed = [dict(one) for one in content]
        value = changed[block][member]
        changed[block][member] = value[:-2] + ("A" if value[-2] != "A" else "B") + value[-1]
        with pytest.raises(anthropic.BadRequestError, match=f"messages.1.content.{block}: Inv"):
            send(changed)
    changed = [dict(one) for one in content]
    found = dict(changed[3]["content"][0])
    found["encrypted_content"] = found["encrypted_content"][:-1] + "0"
    changed[3]["content"] = [found]
    with pytest.raises(anthropic.BadRequestError, match="encrypted_content"):
        send(changed)


@pytest.mark.parametrize(
    ("spec", "kind", "status"),
    [
        ({"status": 401}, anthropic.AuthenticationError, 401),
        ({"status": 403}, anthropic.PermissionDeniedError, 403),
        ({"status": 404}, anthropic.NotFoundError, 404),
        ({"status": 409}, anthropic.ConflictError, 409),
        ({"status": 429, "retry_after": 2}, anthropic.RateLimitError, 429),
        ({"status": 500}, anthropic.InternalServerError, 500),
        ({"status": 529, "should_retry": False}, anthropic.InternalServerError, 529),
        ({"status": 502, "body": "<html>bad gateway</html>"}, anthropic.InternalServerError, 502),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_errors_map_to_the_sdks_classes(
    server: Server, spec: Any, kind: type[anthropic.APIStatusError], status: int, streamed: bool
) -> None:
    with pytest.raises(kind) as caught:
        server.sdk.messages.create(
            model=MODEL,
            max_tokens=10,
            messages=[{"role": "user", "content": script({"error": spec})}],
            stream=streamed,
        )
    headers = caught.value.response.headers
    assert caught.value.status_code == status
    assert caught.value.request_id
    if "retry_after" in spec:
        assert headers["retry-after"] == "2"
    if "should_retry" in spec:
        assert headers["x-should-retry"] == "false"


def test_overflow_speaks_as_the_api_does(server: Server) -> None:
    client = server.sdk

    def ask(step: Any) -> anthropic.APIStatusError:
        with pytest.raises(anthropic.APIStatusError) as caught:
            client.messages.create(model=MODEL, max_tokens=1, messages=[user(script(step))])  # type: ignore[list-item]
        return caught.value

    assert (ask({"overflow": 413}).status_code, ask({"overflow": 413}).api_message) == (
        413,
        "Request exceeds the maximum size",
    )
    assert "prompt is too long: " in str(ask({"overflow": 400}).api_message)
    assert "> 3 maximum" in str(ask({"window_tokens": 3}).api_message)
    fits: Any = [user(script({"content": ["ok"], "window_tokens": 3000}))]
    assert client.messages.create(model=MODEL, max_tokens=1, messages=fits).stop_reason


def test_tokens_are_counted_or_scripted(server: Server) -> None:
    client = server.sdk
    counted = client.messages.count_tokens(
        model=MODEL, messages=[{"role": "user", "content": "x" * 400}]
    )
    assert 100 < counted.input_tokens < 130
    scripted: Any = [user(script({"count_tokens": 12345}))]
    assert client.messages.count_tokens(model=MODEL, messages=scripted).input_tokens == 12345


def test_an_unknown_delta_hides_content_from_who_skips_it(server: Server) -> None:
    step = {"content": ["abcdefghi"], "chunk_chars": 3, "unknown_delta": True}
    messages: Any = [user(script(step))]
    client = server.sdk
    with client.messages.stream(model=MODEL, max_tokens=1, messages=messages) as stream:
        kinds = [e.delta.type for e in stream if e.type == "content_block_delta"]
        assert stream.get_final_text() == "abcghi"
    assert kinds == ["text_delta", "packed_delta", "text_delta"]
    whole: Any = client.messages.create(model=MODEL, max_tokens=1, messages=messages)
    assert whole.content[0].text == "abcdefghi"


def test_unknown_events_and_pings_do_not_disturb_the_sdk(server: Server) -> None:
    step = {
        "content": ["abcdef"],
        "chunk_chars": 2,
        "ping_every": 1,
        "extra_events": [{"event": "weather", "data": {"type": "weather", "n": 1}, "after": 1}],
    }
    body = {"stream": True, "model": MODEL, "max_tokens": 1, "messages": [user(script(step))]}
    text = server.raw(json.dumps(body).encode()).text
    assert text.count("event: ping\n") == 4
    assert text.count("event: weather\ndata: {") == 1
    messages: Any = body["messages"]
    with server.sdk.messages.stream(model=MODEL, max_tokens=1, messages=messages) as stream:
        assert stream.get_final_text() == "abcdef"


def test_a_stream_error_raises_what_the_sdk_raises(server: Server) -> None:
    step = {"content": ["abcdef"], "chunk_chars": 2, "stream_error": {"after": 2}}
    messages: Any = [user(script(step))]
    seen: list[str] = []
    with (
        server.sdk.messages.stream(model=MODEL, max_tokens=1, messages=messages) as stream,
        pytest.raises(anthropic.APIStatusError) as caught,
    ):
        seen.extend(stream.text_stream)
    assert "".join(seen) == "abcd"
    assert caught.value.type == "overloaded_error"


def test_ids_are_bound_to_the_request_not_to_the_transport(server: Server) -> None:
    one = server.say(script({"content": [{"type": "tool_use", "name": "t", "input": {}}]}))
    two = server.say(script({"content": [{"type": "tool_use", "name": "t", "input": {}}]}))
    other = server.say(script({"content": [{"type": "tool_use", "name": "u", "input": {}}]}))
    assert one["content"] == two["content"]
    assert one["content"][0]["id"] != other["content"][0]["id"]
    assert one["content"][0]["id"].startswith("toolu_01")
