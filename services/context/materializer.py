"""Effective history to the bytes of a Messages API request, by joining stored bytes. Pure.

A request is `{"model":…,"max_tokens":…,` options `,"system":…,"tools":[…],"messages":[` + messages
+ `]` + `,"stream":true}`: everything that stays the same comes first, so that a later request
begins with all bytes of an earlier one up to its last message, and provider caches hit. Each item
becomes one message or none, looking at nothing else, so messages of a longer history begin with
those of a shorter one.

Options are what the session pinned of its model, and the profile's automatic prompt caching: the
provider itself then marks the last block that can be cached, so no block ever changes for it.

Blocks are sent back byte for byte. Four things are left out, because the provider itself emits
them but refuses them on resend, which would brick the thread; all are decided by the item alone:

- text blocks that are empty or white space, and an answer of which nothing remains;
- thinking at the end of an answer, with nothing behind it: it was cut off, mostly before its
  signature came, and no answer may end with it;
- the second and later `tool_use` of one id within an answer, and their results;
- blank texts of results; a result without text has no `content`.

An input of which nothing remains says so in a fixed text, because a turn needs a user message.
"""

from collections.abc import Iterable, Sequence

import msgspec
from counterfoil.types.v1 import model_pb2, runtime_pb2

from services.context.reducer import Item, Result, block_head

VERSION = 3
"""Raised whenever the bytes for the same history change."""

_EMPTY_INPUT = b'{"type":"text","text":"(an empty message)"}'
_CACHING = b'"cache_control":{"type":"ephemeral"}'
_THINKING = ("thinking", "redacted_thinking")
_FAST_MODE = "fast-mode-2026-02-01"
_EFFORTS = {
    model_pb2.MODEL_EFFORT_LOW: b"low",
    model_pb2.MODEL_EFFORT_MEDIUM: b"medium",
    model_pb2.MODEL_EFFORT_HIGH: b"high",
    model_pb2.MODEL_EFFORT_XHIGH: b"xhigh",
    model_pb2.MODEL_EFFORT_MAX: b"max",
}
_SPEEDS = {model_pb2.MODEL_SPEED_STANDARD: b"standard", model_pb2.MODEL_SPEED_FAST: b"fast"}
_encode = msgspec.json.Encoder().encode


def request_head(runtime: runtime_pb2.SessionRuntime, output_tokens_max: int) -> bytes:
    """The request up to its first message."""
    members = [
        b'"model":' + _encode(runtime.model),
        b'"max_tokens":' + _encode(output_tokens_max),
        *_options(runtime),
    ]
    if runtime.system:
        members.append(b'"system":' + _encode(runtime.system))
    if runtime.tools:
        tools = b",".join(_tool(tool) for tool in runtime.tools)
        members.append(b'"tools":[' + tools + b"]")
    return b"{" + b",".join(members) + b',"messages":['


def request_betas(runtime: runtime_pb2.SessionRuntime) -> list[str]:
    """What the `anthropic-beta` header of the request names: features that its head asks for."""
    return [_FAST_MODE] if runtime.model_options.speed else []


def request_tail(*, stream: bool) -> bytes:
    """The request behind its last message."""
    return b'],"stream":true}' if stream else b"]}"


def materialize(items: Iterable[Item]) -> list[bytes]:
    """The messages of a history, exact JSON each, to be joined by commas."""
    return [message for item in items if (message := _message(item)) is not None]


def _options(runtime: runtime_pb2.SessionRuntime) -> list[bytes]:
    options = runtime.model_options
    members: list[bytes] = []
    if options.effort:
        members.append(b'"output_config":{"effort":"%b"}' % _EFFORTS[options.effort])
    if options.speed:
        members.append(b'"speed":"%b"' % _SPEEDS[options.speed])
    if options.inference_geo:
        members.append(b'"inference_geo":' + _encode(options.inference_geo))
    if runtime.profile.automatic_prompt_caching:
        members.append(_CACHING)
    return members


def _tool(tool: runtime_pb2.ToolBinding) -> bytes:
    description = b',"description":' + _encode(tool.description) if tool.description else b""
    return b'{"name":%b%b,"input_schema":%b}' % (
        _encode(tool.name),
        description,
        tool.input_schema,
    )


def _message(item: Item) -> bytes | None:
    match item.kind:
        case "input":
            blocks = _resendable(item.blocks) or [_EMPTY_INPUT]
            return _written(b"user", blocks)
        case "answer":
            blocks = _without_last_thinking(_resendable(item.blocks))
            return _written(b"assistant", blocks) if blocks else None
        case "results":
            blocks = [*_results(item.results), *_resendable(item.blocks)]
            return _written(b"user", blocks or [_EMPTY_INPUT])


def _written(role: bytes, blocks: Sequence[bytes]) -> bytes:
    return b'{"role":"%b","content":[%b]}' % (role, b",".join(blocks))


def _resendable(blocks: Iterable[bytes]) -> list[bytes]:
    kept: list[bytes] = []
    ids: set[str] = set()
    for block in blocks:
        head = block_head(block)
        if head.type == "text" and _is_blank(bytes(head.text)):
            continue
        if head.type == "tool_use":
            id = msgspec.json.decode(head.id, type=str)
            if id in ids:
                continue
            ids.add(id)
        kept.append(block)
    return kept


def _without_last_thinking(blocks: list[bytes]) -> list[bytes]:
    while blocks and block_head(blocks[-1]).type in _THINKING:
        blocks.pop()
    return blocks


def _is_blank(raw: bytes) -> bool:
    # Nearly every text begins with a letter: only others are decoded.
    if raw[1:2].isalnum():
        return False
    try:
        text = msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return False
    return not text or text.isspace()


def _results(results: Iterable[Result]) -> list[bytes]:
    written: list[bytes] = []
    ids: set[str] = set()
    for result in results:
        if result.use.id not in ids:
            ids.add(result.use.id)
            written.append(_result(result))
    return written


def _result(result: Result) -> bytes:
    parts = [b'{"type":"text","text":%b}' % text for text in result.texts if not _is_blank(text)]
    content = b',"content":[%b]' % b",".join(parts) if parts else b""
    error = b',"is_error":true' if result.is_error else b""
    return b'{"type":"tool_result","tool_use_id":%b%b%b}' % (result.use.raw_id, content, error)
