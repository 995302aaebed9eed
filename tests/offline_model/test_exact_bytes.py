"""What a script writes is what the wire carries, streamed and whole."""

import json

import msgspec
import pytest

from tests.offline_model.support import Server, request, result, script, user

ODD = [
    '{"b": 1.10,"a":1e400}',
    '{"n":1180591620717411303424,  "m" : -0.0}',
    '{"a":1,"a":2}',
    '{"nul":"\\u0000","esc":"\\u00e9\\/","astral":"\\ud83c\\udf89🎉"}',
    '{"bad":"\\ud99c"}',
    "[]",
    "{}",
]


def events(server: Server, body: bytes) -> list[tuple[str, bytes]]:
    """(event name, data) of a streamed answer."""
    frames = server.raw(body).content.split(b"\n\n")
    parts = [frame.split(b"\ndata: ", 1) for frame in frames if frame]
    return [(name.removeprefix(b"event: ").decode(), data) for name, data in parts]


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_tool_inputs_keep_their_text(server: Server, text: str, size: int) -> None:
    block = {"type": "tool_use", "name": "t", "input_raw": text, "chunk_chars": size}
    step = {"content": [block]}
    streamed = events(server, json.dumps(request(script(step), stream=True)).encode())
    deltas = [json.loads(data)["delta"] for name, data in streamed if name.endswith("_delta")]
    pieces = [delta["partial_json"] for delta in deltas if "partial_json" in delta]
    assert "".join(pieces) == text
    assert pieces[0] == ""
    whole = server.raw(json.dumps(request(script(step))).encode()).content
    if "\\ud99c" in text:
        # The API's own unstreamed answer could not hold it as JSON either.
        assert json.loads(whole)["content"][0]["input"] == {"INVALID_JSON": text}
    else:
        assert b'"input":' + text.encode() + b"}" in whole


def test_an_input_that_is_no_json_is_streamed_as_it_is(server: Server) -> None:
    step = {"content": [{"type": "tool_use", "name": "t", "input_raw": '{"a": '}]}
    answer = server.say(script(step))
    assert answer["content"][0]["input"] == {"INVALID_JSON": '{"a": '}
    empty = {"content": [{"type": "tool_use", "name": "t", "input_raw": ""}]}
    streamed = events(server, json.dumps(request(script(empty), stream=True)).encode())
    assert [d for n, d in streamed if b"partial_json" in d] == [
        b'{"type":"content_block_delta","index":0,'
        b'"delta":{"type":"input_json_delta","partial_json":""}}'
    ]
    assert server.say(script(empty))["content"][0]["input"] == {}


def test_raw_members_of_a_script_are_spliced(server: Server) -> None:
    blocks = [
        '{"type":"mystery","z": 1.10,"a":[1e400 , {"b":null}]}',
        '{"raw":{"type":"text","text":"as it is","x": 2.50}}',
    ]
    known = '{"type":"tool_use","id":"toolu_x","extra":1.10,"name":"t","input":{"q": 1.0}}'
    text = (
        f'offline-script: [{{"content":[{",".join(blocks)},{known}],'
        '"message":{"x_envelope": 1.10},"message_delta":{"x_delta": 1.20},'
        '"usage":{"x_units": 1.30},"stop_reason":"odd_reason","stop_details":{"why": 1.40}}]'
    )
    body = msgspec.json.encode(request(text))
    whole = server.raw(body).content
    verbatim = '{"type":"text","text":"as it is","x": 2.50}'
    assert f'"content":[{blocks[0]},{verbatim},{known}]'.encode() in whole
    tail = b'"stop_reason":"odd_reason","stop_sequence":null,"stop_details":{"why": 1.40}'
    assert tail in whole
    assert b'"x_units": 1.30' not in whole
    assert b'"x_units":1.30' in whole
    assert whole.endswith(b',"x_envelope":1.10}')
    streamed = dict(events(server, msgspec.json.encode(request(text, stream=True))))
    assert b'"x_envelope":1.10' in streamed["message_start"]
    assert tail in streamed["message_delta"]
    assert b'"x_delta":1.20' in streamed["message_delta"]
    starts = [
        data
        for name, data in events(server, msgspec.json.encode(request(text, stream=True)))
        if name == "content_block_start"
    ]
    assert blocks[0].encode() in starts[0]
    assert b'"extra":1.10,"name":"t","input":{}' in starts[2]


def test_odd_blocks_are_accepted_when_they_come_back(server: Server) -> None:
    step = {
        "content": [{"type": "mystery"}, {"type": "tool_use", "name": "t", "input_raw": ODD[0]}]
    }
    start = script(step, "over")
    first = server.raw(json.dumps(request(start)).encode()).content
    content = msgspec.json.decode(first, type=dict[str, msgspec.Raw])["content"]
    id = json.loads(first)["content"][1]["id"]
    region = b"[%s,%s,%s]" % (
        json.dumps(user(start)).encode(),
        b'{"role":"assistant","content":%s}' % bytes(content),
        json.dumps(user([result(id)])).encode(),
    )
    body = b'{"model":"m","max_tokens":1,"messages":%s}' % region
    answer = server.raw(body).json()
    assert answer["content"][0]["text"] == "over"
