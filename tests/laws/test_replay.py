"""Replay is exact: every request begins with the bytes of the one before, whatever they hold."""

import json
from typing import Any

import pytest

from tests.support.chat import Chat, asks, custom_tool, is_over, message, result
from tests.support.invariants import check_everything
from tests.support.model import Asked, begins_with, script
from tests.support.system import System

ODD_NUMBERS = '{"a":1.10,"b":1e400,"c":1180591620717411303424,"d":-0.0,"e":1E+2,"f":0.1000}'
KEY_ORDER = '{"z":1,"a":{"y":[],"b":{}},"m":null,"A":true}'
CHARACTERS = r'{"nul":"\u0000","astral":"\ud83d\ude00😀","slash":"\/","line":"\u2028"}'


def decide(input: str) -> str:
    """A call with exactly this input."""
    return '{"type":"tool_use","name":"decide","input":' + input + "}"


HOLOGRAM = '{"type":"hologram","x":' + ODD_NUMBERS + ',"y":' + KEY_ORDER + "}"
BLOCKS: dict[str, str] = {
    "thinking with a signature": '{"type":"thinking","thinking":"Hmm, \\u0000 \\ud83d\\ude00."}',
    "thinking without text": '{"type":"thinking","thinking":""}',
    "redacted thinking": '{"type":"redacted_thinking"}',
    "an unknown block": '{"raw":' + HOLOGRAM + "}",
    "an unknown field": '{"type":"text","text":"known","later":' + KEY_ORDER + ',"z":1.10}',
    "odd numbers": decide(ODD_NUMBERS),
    "key order": decide(KEY_ORDER),
    "characters": decide(CHARACTERS),
    "spaces": '{"type":"tool_use","name":"decide","input_raw":"{ \\"a\\" : [ 1 ,2 ] }"}',
    "no input": '{"type":"tool_use","name":"decide","input_raw":""}',
    "server tool": '{"type":"server_tool_use","name":"web_search","input":{"query":"x"}}',
    "citations": '{"type":"text","text":"cited","citations":[{"type":"char_location",'
    '"cited_text":"x","document_index":0,"start_char_index":0,"end_char_index":1}]}',
}
SEARCH_RESULT = (
    '{"type":"web_search_tool_result","content":[{"type":"web_search_result",'
    '"title":"t","url":"https://e.example","page_age":null}]}'
)
FINAL = '{"content":[{"type":"text","text":"Done."}]}'


def steps(*blocks: str) -> str:
    return 'offline-script: [{"content":[' + ",".join(blocks) + "]}," + FINAL + "]"


async def run(system: System, text: str) -> list[Asked]:
    """A turn with this script, its calls answered, and one more turn; the requests."""
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    history = await chat.complete(
        [text], lambda event: result(event["id"], "yes \0 😀"), early=False
    )
    await chat.say("and again")
    history = await chat.history()
    asked = await check_everything(chat, history)
    begins_with(asked)
    return asked


@pytest.mark.parametrize("name", BLOCKS)
async def test_a_block_comes_back_as_it_was(running_system: System, name: str) -> None:
    blocks = [BLOCKS[name]]
    if name == "server tool":
        blocks.append(SEARCH_RESULT)
    asked = await run(running_system, steps(*blocks, '{"type":"text","text":"end"}'))
    assert len(asked) >= 2


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("odd numbers", ODD_NUMBERS),
        ("key order", KEY_ORDER),
        ("characters", CHARACTERS),
        ("spaces", '{ "a" : [ 1 ,2 ] }'),
        ("an unknown block", ODD_NUMBERS),
    ],
)
async def test_values_keep_their_spelling(running_system: System, name: str, exact: str) -> None:
    asked = await run(running_system, steps(BLOCKS[name], '{"type":"text","text":"end"}'))
    answer = asked[1].body.partition(b'"role":"assistant"')[2]
    assert exact.encode() in answer


async def test_public_inputs_keep_their_spelling(running_system: System) -> None:
    chat = await Chat.open(running_system, tools=[custom_tool("decide")])
    await chat.complete([steps(BLOCKS["odd numbers"])], until=asks)
    listed = await running_system.http().get(f"/v1/sessions/{chat.id}/events")
    assert f'"input":{ODD_NUMBERS}' in listed.text
    assert "toolu_" not in listed.text


async def test_everything_at_once_over_three_turns(running_system: System) -> None:
    chat = await Chat.open(running_system, tools=[custom_tool("decide")])
    texts = [
        steps(*BLOCKS.values(), SEARCH_RESULT, '{"type":"text","text":"\\u0000"}'),
        "user \0 😀 \ud7ff  text",
        steps(BLOCKS["thinking with a signature"], '{"type":"text","text":"bye"}'),
    ]
    history: list[dict[str, Any]] = []
    for number in range(len(texts)):
        history = await chat.complete(
            texts[: number + 1], lambda event: result(event["id"], f"for {event['input']!r}")
        )
    asked = await check_everything(chat, history)
    begins_with(asked)
    assert len(asked) == 4
    said = [block.get("text") for one in asked[-1].messages for block in one["content"]]
    assert texts[1] in said


@pytest.mark.parametrize(
    "content",
    [
        '[{"type":"text","text":""}]',
        '[{"type":"text","text":"  \\n"}]',
        "[]",
        '[{"type":"text","text":""},{"type":"tool_use","name":"decide","input":{}}]',
    ],
    ids=["an empty text", "a blank text", "no block", "an empty text before a call"],
)
async def test_what_no_request_may_hold_is_left_out(running_system: System, content: str) -> None:
    await run(running_system, 'offline-script: [{"content":' + content + "}," + FINAL + "]")


async def test_an_empty_result_has_no_content(running_system: System) -> None:
    chat = await Chat.open(running_system, tools=[custom_tool("decide")])

    def empty(event: dict[str, Any]) -> dict[str, Any]:
        return {"type": "user.custom_tool_result", "custom_tool_use_id": event["id"], "content": []}

    history = await chat.complete([steps(BLOCKS["key order"])], empty)
    asked = await check_everything(chat, history)
    assert "content" not in asked[1].messages[-1]["content"][0]


async def test_equal_provider_ids_of_two_rounds_stay_apart(running_system: System) -> None:
    calls = [
        {"type": "tool_use", "id": "call_same", "name": "decide", "input": {"n": n}} for n in (1, 2)
    ]
    text = script(*({"content": [call]} for call in calls), "Done.")
    chat = await Chat.open(running_system, tools=[custom_tool("decide")])
    history = await chat.complete([text], lambda e: result(e["id"], str(e["input"]["n"])))
    asked = await check_everything(chat, history)
    results = [b for m in asked[-1].messages for b in m["content"] if b["type"] == "tool_result"]
    assert [block["content"][0]["text"] for block in results] == ["1", "2"]


async def test_images_and_documents_stay_in_the_input(running_system: System) -> None:
    chat = await Chat.open(running_system)
    pixel = (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
        "rkJggg=="
    )
    blocks = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": pixel}},
        {"type": "image", "source": {"type": "url", "url": "https://e.example/i.png"}},
        {"type": "document", "source": {"type": "url", "url": "https://e.example/d.pdf"}},
        {"type": "text", "text": "what is this?"},
    ]
    async with chat.stream() as stream:
        await chat.send({"type": "user.message", "content": blocks})
        await stream.until(is_over)
    await chat.say("again")
    asked = await check_everything(chat, await chat.history())
    begins_with(asked)
    assert [block["type"] for block in asked[0].messages[0]["content"]] == [
        "image",
        "image",
        "document",
        "text",
    ]


async def test_the_prefix_survives_a_new_process(running_system: System) -> None:
    system = running_system
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    await chat.complete([steps(*list(BLOCKS.values())[:5])])
    await system.kill()
    await system.start()
    chat = Chat(system, chat.id, system.client())
    await chat.say("after the restart")
    asked = await check_everything(chat, await chat.history())
    begins_with(asked)
    assert asked[1].record["prefix_bytes"] >= len(asked[0].region)


async def test_a_system_prompt_and_tools_stand_before_the_messages(
    running_system: System,
) -> None:
    chat = await Chat.open(running_system, tools=[custom_tool("decide")], system_prompt="Be \0.")
    async with chat.stream() as stream:
        await chat.send(message("hello"))
        await stream.until(is_over)
    (asked,) = await check_everything(chat, await chat.history())
    body = json.loads(asked.body)
    before = ["model", "max_tokens", "cache_control", "system", "tools"]
    assert list(body) == [*before, "messages", "stream"]
    assert body["system"] == "Be \0."
    assert [tool["name"] for tool in body["tools"]] == [
        "decide",
        "note",
        "transfer",
        "read_archive",
    ]
