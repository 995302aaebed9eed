"""Blocks are the provider's bytes, streamed or whole: numbers, order, unknown members and all."""

import json

import pytest

from services.runner.adapter.assemble import Piece
from services.runner.adapter.messages import MessagesAdapter
from services.runner.answer import usage_of
from tests.offline_model.support import Server
from tests.services.runner.adapter.support import ask, body

ODD = b'{"z":1.10,"a":[1e400,-0.0,1180591620717411303424],"k":"\\u0000 \\ud83d\\ude00 \\/"}'

BLOCKS = {
    "odd numbers and key order": b'{"type":"tool_use","id":"t1","name":"n","input":%s}' % ODD,
    "input with spaces": b'{"type":"tool_use","id":"t1","name":"n","input":{ "a" : [ 1,\n2 ] }}',
    "empty input": b'{"type":"tool_use","id":"t1","name":"n","input":{}}',
    "unknown members of a call": b'{"type":"tool_use","caller":{"b":1.10,"a":2},"id":"t1",'
    b'"name":"n","input":{},"later":[1e400]}',
    "unknown block": b'{"type":"hologram","b":1.10,"a":{"y":1,"x":1e400}}',
    "whole at its start": b'{"raw":{"b": 1.10, "type":"text","text" : "\\u0041"}}',
    "thinking": b'{"type":"thinking","thinking":"step \\u0000 by step","effort":1.10}',
    "empty thinking": b'{"type":"thinking","thinking":""}',
    "redacted thinking": b'{"type":"redacted_thinking"}',
    "text beyond the basic plane": '{"type":"text","text":"a\\u0000b 😀 é \\" \\\\ \\n"}'.encode(),
    "empty text": b'{"type":"text","text":""}',
    "citations": b'{"type":"text","text":"cited","citations":[{"b":1.10,"a":1},{"type":"new"}]}',
    "provider-run tool": b'{"type":"server_tool_use","name":"web_search","input":{"q":1.10}}',
}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS.keys())
async def test_streamed_and_whole_answers_are_the_same_bytes(
    adapter: MessagesAdapter, block: bytes
) -> None:
    step = b'{"chunk_chars":3,"ping_every":2,"content":["before",%s,"after"]}' % block
    streamed = await ask(adapter, step)
    whole = await ask(adapter, step, stream=False)
    assert streamed.blocks == whole.blocks
    assert len(streamed.blocks) == 3
    assert streamed.stop_reason == whole.stop_reason
    assert streamed.usage == whole.usage


async def test_odd_values_keep_their_spelling(adapter: MessagesAdapter) -> None:
    block = b'{"type":"tool_use","x":1.10,"id":"t1","name":"n","input":%s,"y":%s}' % (ODD, ODD)
    for stream in (True, False):
        answer = await ask(adapter, b'{"content":[%s]}' % block, stream=stream)
        assert answer.blocks == (block,)


async def test_the_envelope_keeps_what_we_do_not_know(adapter: MessagesAdapter) -> None:
    step = (
        b'{"content":["x"],"stop_reason":"novel","stop_details":{"b":1.10,"a":null},'
        b'"message":{"container":{"z":1e400,"a":1}},"usage":{"output_tokens":7,"odd":{"n":1.10}}}'
    )
    streamed = await ask(adapter, step)
    whole = await ask(adapter, step, stream=False)
    assert streamed.stop_reason == whole.stop_reason == "novel"
    for envelope in (streamed.envelope, whole.envelope):
        assert b'"stop_details":{"b":1.10,"a":null}' in envelope
        assert b'"container":{"z":1e400,"a":1}' in envelope
        assert b'"odd":{"n":1.10}' in envelope
        assert b'"content"' not in envelope
    assert streamed.usage.output_tokens == 7
    # Only the message id tells the two answers apart.
    first, second = json.loads(streamed.envelope), json.loads(whole.envelope)
    assert {**first, "id": ""} == {**second, "id": ""}


async def test_members_beside_the_final_delta_are_kept(adapter: MessagesAdapter) -> None:
    step = b'{"content":["x"],"message_delta":{"context_management":{"n":1.10}}}'
    answer = await ask(adapter, step)
    assert b'"context_management":{"n":1.10}' in answer.envelope


async def test_unknown_events_and_pings_change_nothing(adapter: MessagesAdapter) -> None:
    plain = await ask(adapter, {"content": ["some text"], "chunks": 4})
    noisy = {
        "content": ["some text"],
        "chunks": 4,
        "ping_every": 1,
        "extra_events": [{"event": "content_block_shrug", "data": {"a": 1}, "after": 2}],
    }
    assert (await ask(adapter, noisy)).blocks == plain.blocks


async def test_an_answer_is_accepted_when_it_comes_back(adapter: MessagesAdapter) -> None:
    """Signatures and sealed values hold: the provider checks them."""
    step = b'{"content":[%s,{"type":"redacted_thinking"},"text",%s]}' % (
        BLOCKS["thinking"],
        BLOCKS["odd numbers and key order"],
    )
    request = body(step, b'"done"')
    first = await adapter.call(request, stream=True, on_piece=lambda _: None)
    result = b'{"type":"tool_result","tool_use_id":"t1","content":"ok"}'
    more = b',{"role":"assistant","content":[%s]},{"role":"user","content":[%s]}]}' % (
        b",".join(first.blocks),
        result,
    )
    assert request.endswith(b"]}")
    second = await adapter.call(request[:-2] + more, stream=True, on_piece=lambda _: None)
    assert second.blocks == (b'{"type":"text","text":"done"}',)


async def test_pieces_announce_blocks_and_spell_their_text(adapter: MessagesAdapter) -> None:
    found: list[Piece] = []
    step = {
        "content": [
            {"type": "thinking", "thinking": "secret thoughts"},
            "hello world",
            {"type": "tool_use", "name": "n"},
            "",
        ],
        "chunks": 3,
    }
    await adapter.call(body(step), stream=True, on_piece=found.append)
    assert found[0] == Piece(0, "thinking", "")
    assert found[1] == Piece(1, "text", "")
    assert [piece.block_index for piece in found] == [0, 1, 1, 1, 1, 3]
    assert "".join(piece.text for piece in found) == "hello world"


async def test_usage_and_request_id_are_reported(
    adapter: MessagesAdapter, provider: Server
) -> None:
    usage = {"input_tokens": 5, "output_tokens": 6, "cache_read_input_tokens": 7}
    for stream in (True, False):
        answer = await ask(adapter, {"content": ["x"], "usage": usage}, stream=stream)
        assert answer.usage.input_tokens == 5
        assert answer.usage.output_tokens == 6
        assert answer.usage.cache_read_input_tokens == 7
        assert usage_of(answer.envelope) == answer.usage
        records = provider.get("/control/requests")["requests"]
        assert answer.provider_request_id in [record["request_id"] for record in records]


@pytest.mark.parametrize("text", ['{"a": [1, ', "nonsense", "[1]", '{"a":1,"a":2}', " "])
async def test_an_input_that_is_no_object_is_kept_as_the_api_takes_it_back(
    adapter: MessagesAdapter, text: str
) -> None:
    block = {"type": "tool_use", "id": "t1", "name": "n", "input_raw": text}
    answer = await ask(adapter, {"content": [block], "chunk_chars": 2})
    assert json.loads(answer.blocks[0])["input"] == {"INVALID_JSON": text}
