"""From the frames of a stream, or a whole body, to one answer of exact bytes. Pure.

Both ways give the same bytes for the same answer: blocks as the provider would send them whole,
and an envelope that is the message without its content, unknown members included.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

from counterfoil.types.v1 import model_pb2, usage_pb2

from foundation.json import InvalidJson, items, members, parse
from foundation.json.exact import RawJson
from services.runner.adapter.blocks import OpenBlock, joined
from services.runner.adapter.failures import bad_answer, of_error_event, truncated

_SPEEDS = {"standard": model_pb2.MODEL_SPEED_STANDARD, "fast": model_pb2.MODEL_SPEED_FAST}
_NO_SPEED = model_pb2.MODEL_SPEED_UNSPECIFIED
_COUNTED = frozenset(
    {
        "input_tokens",
        "output_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "cache_creation",
        "server_tool_use",
        "speed",
    }
)
_INT64_MAX = 2**63 - 1
_NAME_CHARS_MAX = 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer: exact JSON of each block, and of the message without `content`."""

    blocks: tuple[bytes, ...]
    envelope: bytes
    stop_reason: str
    usage: usage_pb2.ModelUsage
    provider_request_id: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Live progress of a block: empty text announces it, later ones append to it.

    Thinking is only announced.
    """

    block_index: int
    kind: Literal["text", "thinking"]
    text: str


class Assembly:
    """Takes the frames of one stream, in order; needs no clock and no connection."""

    def __init__(self, provider_request_id: str = "") -> None:
        self.complete = False
        self._provider_request_id = provider_request_id
        self._blocks: list[OpenBlock] = []
        self._envelope: dict[str, RawJson] | None = None
        self._usage: dict[str, RawJson] = {}
        self._handlers: dict[str, Callable[[_Frame], list[Piece]]] = {
            "message_start": self._message_start,
            "content_block_start": self._block_start,
            "content_block_delta": self._block_delta,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
            "error": self._error,
        }

    def feed(self, event: str | None, data: bytes) -> list[Piece]:
        """Take one frame: its event name (None without one) and its data.

        Returns what it adds to live progress. Events that we do not know and everything behind
        `message_stop` count for nothing. Raises UnknownDelta and ProviderFailure.
        """
        if self.complete or (event and event not in self._handlers):
            return []
        frame = _Frame(data)
        name = event or frame.value.get("type")
        handler = self._handlers.get(name) if isinstance(name, str) else None
        return handler(frame) if handler else []

    def answer(self) -> Answer:
        """The answer; raises ProviderFailure (`truncated`) before `message_stop`."""
        if not self.complete or self._envelope is None:
            raise truncated()
        blocks = tuple(block.finish() for block in self._blocks)
        _check_answerable(map(_finished, self._blocks, blocks))
        if self._usage:
            self._envelope["usage"] = joined(self._usage)
        return Answer(
            blocks=blocks,
            envelope=joined(self._envelope),
            stop_reason=_stop_reason(self._envelope),
            usage=self.usage(),
            provider_request_id=self._provider_request_id,
        )

    def usage(self) -> usage_pb2.ModelUsage:
        """What the provider has reported so far."""
        return model_usage(self._usage)

    def _message_start(self, frame: "_Frame") -> list[Piece]:
        if self._envelope is not None:
            raise bad_answer("it begins twice")
        found = frame.object("message")
        content = found.pop("content", b"null")
        for raw in items(content) if bytes(content)[:1] == b"[" else ():
            self._blocks.append(OpenBlock(bytes(raw), parse(bytes(raw))))
        self._envelope = found
        self._merge_usage(found)
        return []

    def _block_start(self, frame: "_Frame") -> list[Piece]:
        self._begun()
        index = frame.index()
        if index != len(self._blocks) or "content_block" not in frame.raw:
            raise bad_answer("its blocks are not in order")
        block = OpenBlock(bytes(frame.raw["content_block"]), frame.value["content_block"])
        self._blocks.append(block)
        if block.type in ("thinking", "redacted_thinking"):
            return [Piece(index, "thinking", "")]
        if block.type != "text":
            return []
        text = block.start_text("text")
        return [Piece(index, "text", ""), *([Piece(index, "text", text)] if text else [])]

    def _block_delta(self, frame: "_Frame") -> list[Piece]:
        index = frame.index()
        if index >= len(self._blocks):
            raise bad_answer("a delta continues a block that never began")
        delta = frame.value.get("delta")
        if not isinstance(delta, dict):
            raise bad_answer("its delta is no JSON object")
        block = self._blocks[index]
        text = block.grow(cast(dict[str, Any], delta), lambda: frame.object("delta"))
        return [Piece(index, "text", text)] if text and block.type == "text" else []

    def _message_delta(self, frame: "_Frame") -> list[Piece]:
        envelope = self._begun()
        envelope.update(frame.object("delta") if "delta" in frame.raw else {})
        beside = {key: frame.raw[key] for key in frame.raw if key not in ("type", "delta")}
        self._merge_usage(beside)
        envelope.update({key: raw for key, raw in beside.items() if key != "usage"})
        return []

    def _message_stop(self, _: "_Frame") -> list[Piece]:
        self._begun()
        self.complete = True
        return []

    def _error(self, frame: "_Frame") -> list[Piece]:
        raise of_error_event(frame.value)

    def _begun(self) -> "dict[str, RawJson]":
        if self._envelope is None:
            raise bad_answer("it has no beginning")
        return self._envelope

    def _merge_usage(self, found: Mapping[str, RawJson]) -> None:
        """Later counts replace earlier ones; a later null says nothing."""
        raw = found.get("usage", b"null")
        if bytes(raw) == b"null":
            return
        for key, value in _object(raw, "usage").items():
            if key not in self._usage or bytes(value) != b"null":
                self._usage[key] = value


def whole(body: bytes, provider_request_id: str = "") -> Answer:
    """The answer in an unstreamed body. Raises ProviderFailure."""
    frame = _Frame(body)
    if frame.value.get("type") == "error":
        raise of_error_event(frame.value)
    content = frame.value.get("content")
    if not isinstance(content, list):
        raise bad_answer("it has no content")
    _check_answerable(cast(list[Any], content))
    envelope = dict(frame.raw)
    blocks = items(envelope.pop("content"))
    usage = envelope.get("usage", b"null")
    return Answer(
        blocks=tuple(map(bytes, blocks)),
        envelope=joined(envelope),
        stop_reason=_stop_reason(envelope),
        usage=model_usage({} if bytes(usage) == b"null" else _object(usage, "usage")),
        provider_request_id=provider_request_id,
    )


class _Frame:
    """One strict JSON object: parsed to decide by, and its members' exact bytes."""

    def __init__(self, data: bytes) -> None:
        try:
            value = parse(data)
        except InvalidJson as error:
            raise bad_answer("it is not valid JSON") from error
        if not isinstance(value, dict):
            raise bad_answer("it is no JSON object")
        self.value: dict[str, Any] = value
        self._data = data

    @cached_property
    def raw(self) -> dict[str, RawJson]:
        """The exact bytes of each member; most deltas need none of them."""
        return {**members(self._data)}

    def index(self) -> int:
        """The block index of the frame."""
        found = self.value.get("index")
        if type(found) is not int or found < 0:
            raise bad_answer("a frame names no block")
        return found

    def object(self, name: str) -> dict[str, RawJson]:
        """The raw members of an object in the frame."""
        return _object(self.raw.get(name, b"null"), name)


def _object(raw: RawJson, name: str) -> dict[str, RawJson]:
    if bytes(raw)[:1] != b"{":
        raise bad_answer(f"its {name} is no JSON object")
    return {**members(raw)}


def _stop_reason(envelope: Mapping[str, RawJson]) -> str:
    found = parse(bytes(envelope.get("stop_reason", b"null")))
    return found if isinstance(found, str) else ""


def model_usage(raw: Mapping[str, RawJson]) -> usage_pb2.ModelUsage:
    """The counts among the members of a message's `usage`; 0 for what is missing or no count."""
    told = {name: _told(bytes(value)) for name, value in raw.items() if name in _COUNTED}
    written, tools = _dict(told.get("cache_creation")), _dict(told.get("server_tool_use"))
    hour = _count(written, "ephemeral_1h_input_tokens")
    total = _count(told, "cache_creation_input_tokens")
    if not total:
        total = min(hour + _count(written, "ephemeral_5m_input_tokens"), _INT64_MAX)
    speed = told.get("speed")
    return usage_pb2.ModelUsage(
        input_tokens=_count(told, "input_tokens"),
        output_tokens=_count(told, "output_tokens"),
        cache_creation_input_tokens=total,
        cache_creation_1h_input_tokens=min(hour, total),
        cache_read_input_tokens=_count(told, "cache_read_input_tokens"),
        web_search_requests=_count(tools, "web_search_requests"),
        web_fetch_requests=_count(tools, "web_fetch_requests"),
        speed=_SPEEDS.get(speed if isinstance(speed, str) else "", _NO_SPEED),
    )


def _told(value: bytes) -> Any:
    """A value; nearly always a small count, whose digits need no parser."""
    return int(value) if value.isdigit() and len(value) < 19 else parse(value)


def _count(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name)
    return value if type(value) is int and 0 <= value <= _INT64_MAX else 0


def _dict(value: object) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _finished(block: OpenBlock, raw: bytes) -> Any:
    """A block as far as it is checked: deltas may bring a text that its start lacks."""
    has_text = isinstance(block.value.get("text"), str)
    return parse(raw) if block.type == "text" and not has_text else block.value


def _check_answerable(values: Iterable[Any]) -> None:
    """Refuse what history could never hold: no provider takes back a block that is no object with
    a type, a text that is none, or a call that no result could name."""
    for value in values:
        block = cast(dict[str, Any], value) if isinstance(value, dict) else {}
        type_ = block.get("type")
        if not isinstance(type_, str):
            raise bad_answer("a block is no object with a type")
        if type_ == "text" and not isinstance(block.get("text"), str):
            raise bad_answer("a text block has no text")
        if type_ == "tool_use" and not all(
            isinstance(name := block.get(member), str) and 0 < len(name) <= _NAME_CHARS_MAX
            for member in ("id", "name")
        ):
            raise bad_answer("a tool call has no id or no name")
