"""Effective history to the bytes of a Messages API request, by joining stored bytes. Pure.

A request is `{"model":…,"max_tokens":…,` options `,"system":…,"tools":[…],"messages":[` + messages
+ `]` + `,"stream":true}`: everything that stays the same comes first, so that a later request
begins with all bytes of an earlier one up to its last message, and provider caches hit. Each item
becomes one message or none, looking at nothing else, so messages of a longer history begin with
those of a shorter one.

Options are what the session pinned of its model, and the profile's automatic prompt caching: the
provider itself then marks the last block that can be cached, so no block ever changes for it.

Blocks are sent back byte for byte. Four things are left out, because the provider itself emits
them but refuses them on resend, which would brick the thread, and one that it never takes; all are
decided by the item alone:

- text blocks that are empty or white space, and an answer of which nothing remains;
- thinking at the end of an answer, with nothing behind it: it was cut off, mostly before its
  signature came, and no answer may end with it;
- the second and later `tool_use` of one id within an answer, and their results;
- blank texts of results; a result without text has no `content`;
- images whose base64 is longer than 5 MiB: a line says so.

Images of results are sent as long as all images before them and this one fit a budget of bytes: the
oldest first, so that what is in an earlier request stays there. One that does not fit is named.

An input of which nothing remains says so in a fixed text, because a turn needs a user message.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from counterfoil.types.v1 import model_pb2, runtime_pb2

from foundation import artifacts
from foundation.projections import Artifact, Text
from services.context.estimates import IMAGE_TOKENS, is_refused, media_of, text_tokens
from services.context.reducer import Item, Result, block_head

VERSION = 5
"""Raised whenever the bytes for the same history change."""

IMAGE_BYTES_MAX = 12 * 2**20
"""Bytes of result images in one request, before base64."""

_EMPTY_INPUT = b'{"type":"text","text":"(an empty message)"}'
_REFUSED_IMAGE = b'{"type":"text","text":"(an image of more than 3.75 MiB was left out here)"}'
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
_TEXT = b'{"type":"text","text":%b}'
_IMAGE = b'{"type":"image","source":{"type":"base64","media_type":%b,"data":"%b"}}'
_encode = msgspec.json.Encoder().encode


def request_head(runtime: runtime_pb2.SessionRuntime, output_tokens_max: int) -> bytes:
    """The request up to its first message."""
    members = [
        b'"model":' + _encode(runtime.model),
        b'"max_tokens":' + _encode(output_tokens_max),
        *_options(runtime),
        *_prompt(runtime),
    ]
    return b"{" + b",".join(members) + b',"messages":['


def request_betas(runtime: runtime_pb2.SessionRuntime) -> list[str]:
    """What the `anthropic-beta` header of the request names: features that its head asks for."""
    return [_FAST_MODE] if runtime.model_options.speed else []


def request_tail(*, stream: bool) -> bytes:
    """The request behind its last message."""
    return b'],"stream":true}' if stream else b"]}"


def summary_tail(instruction: str, *, has_tools: bool) -> bytes:
    """What stands behind the messages of a request for a summary: the instruction as the last
    message. The tools stay declared, because history uses them, and none may be called."""
    asked = b'{"role":"user","content":[{"type":"text","text":%b}]}' % _encode(instruction)
    choice = b',"tool_choice":{"type":"none"}' if has_tools else b""
    return b"," + asked + b"]" + choice + b"}"


def count_body(runtime: runtime_pb2.SessionRuntime, messages: bytes) -> bytes:
    """What a provider's counting endpoint is asked: model, system prompt, tools and messages."""
    members = [b'"model":' + _encode(runtime.model), *_prompt(runtime)]
    return b"{" + b",".join(members) + b',"messages":[' + messages + b"]}"


class Message(NamedTuple):
    """One message, exact JSON, and the media in it: see `estimates.Media`."""

    body: bytes
    media_bytes: int
    media_tokens: int


class Materialized(NamedTuple):
    """Messages, to be joined by commas, and the bytes of result images through their end."""

    messages: list[tuple[Item, Message]]
    image_bytes: int


Blobs = Mapping[str, bytes]
"""Bytes of artifacts by id."""


def wanted_artifacts(items: Iterable[Item], image_bytes: int) -> list[str]:
    """Artifacts whose bytes `materialize` needs for these items, behind so many bytes of images."""
    images, wanted = _Images(image_bytes), list[str]()
    for item in items:
        for result in shown_results(item):
            taken = map(images.take, result.parts)
            wanted += [part.id for part in taken if part is not None]
    return wanted


def materialize(items: Iterable[Item], blobs: Blobs, image_bytes: int = 0) -> Materialized:
    """The messages of a history that follows one with so many bytes of result images.

    An artifact that is wanted and not among the blobs is gone for good.
    """
    images = _Images(image_bytes)
    return Materialized(_messages(items, blobs, images), images.used)


def tokens_of(items: Iterable[Item]) -> int:
    """Estimated tokens of a whole history, as it is shown."""
    weights = [_weight(one) for _, one in _messages(items, None, _Images(0))]
    return text_tokens(sum(size + 1 for size, _ in weights)) + sum(tokens for _, tokens in weights)


def item_tokens(item: Item) -> int:
    """Estimated tokens of one item by itself: all its images are sent that find room together."""
    return tokens_of([item])


def result_tokens(result: Result) -> int:
    """Estimated tokens of one result by itself."""
    media = _Media()
    body = _result(result, None, _Images(0), media)
    return text_tokens(len(body) - media.bytes) + media.tokens


def image_bytes_of(item: Item) -> int:
    """Bytes of the images that an item's results show, whether or not they find room."""
    parts = [part for result in shown_results(item) for part in result.parts]
    return sum(part.size for part in parts if isinstance(part, Artifact) and part.is_image)


def shown_results(item: Item) -> list[Result]:
    """The results of an item without those of repeated ids."""
    kept: dict[str, Result] = {}
    for result in item.results:
        kept.setdefault(result.use.id, result)
    return list(kept.values())


class _Images:
    """The budget of result images, oldest first."""

    def __init__(self, used: int) -> None:
        self.used = used

    def take(self, part: Text | Artifact) -> Artifact | None:
        """The part, if it is an image that is sent."""
        if not isinstance(part, Artifact) or not part.is_image:
            return None
        # One that the provider refuses can only come from elsewhere, with an import.
        if part.size > artifacts.IMAGE_BYTES_MAX or self.used + part.size > IMAGE_BYTES_MAX:
            return None
        self.used += part.size
        return part


def _prompt(runtime: runtime_pb2.SessionRuntime) -> list[bytes]:
    members: list[bytes] = []
    if runtime.system:
        members.append(b'"system":' + _encode(runtime.system))
    if runtime.tools:
        tools = b",".join(_tool(tool) for tool in runtime.tools)
        members.append(b'"tools":[' + tools + b"]")
    return members


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


def _messages(
    items: Iterable[Item], blobs: Blobs | None, images: _Images
) -> list[tuple[Item, Message]]:
    """Without `blobs`, bytes of images are empty: what is left is what can be weighed."""
    found = ((item, _message(item, blobs, images)) for item in items)
    return [(item, message) for item, message in found if message is not None]


def _weight(message: Message) -> tuple[int, int]:
    """Bytes of text, and tokens of media."""
    return len(message.body) - message.media_bytes, message.media_tokens


def _message(item: Item, blobs: Blobs | None, images: _Images) -> Message | None:
    media = _Media()
    match item.kind:
        case "input":
            blocks = _resendable(item.blocks, media) or [_EMPTY_INPUT]
            return media.message(b"user", blocks)
        case "answer":
            blocks = _without_last_thinking(_resendable(item.blocks, media))
            return media.message(b"assistant", blocks) if blocks else None
        case "results":
            results = [_result(one, blobs, images, media) for one in shown_results(item)]
            blocks = [*results, *_resendable(item.blocks, media)]
            return media.message(b"user", blocks or [_EMPTY_INPUT])
        case "summary":
            return media.message(b"user", item.blocks)


class _Media:
    """What of a message is no text."""

    def __init__(self) -> None:
        self.bytes = 0
        self.tokens = 0

    def add(self, length: int, tokens: int) -> None:
        self.bytes += length
        self.tokens += tokens

    def message(self, role: bytes, blocks: Sequence[bytes]) -> Message:
        body = b'{"role":"%b","content":[%b]}' % (role, b",".join(blocks))
        return Message(body, self.bytes, self.tokens)


def _resendable(blocks: Iterable[bytes], media: _Media) -> list[bytes]:
    kept: list[bytes] = []
    ids: set[str] = set()
    for block in blocks:
        head = block_head(block)
        if head.type == "text":
            if _is_blank(bytes(head.text)):
                continue
        elif head.type == "tool_use":
            id = msgspec.json.decode(head.id, type=str)
            if id in ids:
                continue
            ids.add(id)
        elif is_refused(block, head):
            kept.append(_REFUSED_IMAGE)
            continue
        elif head.type in ("image", "document"):
            found = media_of(block, head)
            media.add(found.bytes, found.tokens)
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


def _result(result: Result, blobs: Blobs | None, images: _Images, media: _Media) -> bytes:
    parts = [
        written
        for part in result.parts
        if (written := _part(part, blobs, images, media)) is not None
    ]
    content = b',"content":[%b]' % b",".join(parts) if parts else b""
    error = b',"is_error":true' if result.is_error else b""
    return b'{"type":"tool_result","tool_use_id":%b%b%b}' % (result.use.raw_id, content, error)


def _part(
    part: Text | Artifact, blobs: Blobs | None, images: _Images, media: _Media
) -> bytes | None:
    if isinstance(part, Text):
        return None if _is_blank(part.raw) else _TEXT % part.raw
    if images.take(part) is None:
        return _TEXT % _encode(artifacts.line(part))
    body = b"" if blobs is None else blobs.get(part.id)
    if body is None:
        return _TEXT % _encode(artifacts.GONE_TEXT)
    data = base64.b64encode(body)
    media.add(len(data), IMAGE_TOKENS)
    return _IMAGE % (_encode(part.media_type), data)
