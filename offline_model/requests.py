"""Parsing a request body: exact slices where bytes matter, values where rules need them."""

from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from offline_model.errors import ApiError, invalid

T = TypeVar("T")

BODY_BYTES_MAX = 32 * 1024 * 1024


class Block(Struct):
    """One content block; members that are not needed by a rule are skipped, not lost."""

    type: str
    text: Raw = Raw()
    id: Raw = Raw()
    name: Raw = Raw()
    input: Raw = Raw()
    tool_use_id: Raw = Raw()
    content: Raw = Raw()
    is_error: bool | None = None
    thinking: Raw = Raw()
    signature: Raw = Raw()
    data: Raw = Raw()
    cache_control: Raw = Raw()
    source: Raw = Raw()


class Message(Struct):
    """One message; block members that no rule needs are only in the region's bytes."""

    role: str
    content: str | list[Block]

    def blocks(self) -> list[Block]:
        """The content as blocks; a string is one text block."""
        if isinstance(self.content, str):
            return [Block(type="text", text=Raw(msgspec.json.encode(self.content)))]
        return self.content


class Tool(Struct):
    """A tool definition; server tools have a ``type`` other than ``custom``."""

    name: str = ""
    type: str | None = None
    input_schema: Raw = Raw()


class Request(Struct):
    """A request that could be parsed. ``region`` is the exact JSON of ``messages``."""

    body: bytes
    members: dict[str, Raw]
    model: str
    messages: list[Message]
    tools: list[Tool]
    region: bytes
    stream: bool
    max_tokens: int | None

    @property
    def system(self) -> bytes:
        """The exact JSON of ``system``, or nothing."""
        return bytes(self.members.get("system", Raw()))

    @property
    def caches(self) -> bool:
        """Whether the request asks for prompt caching, anywhere."""
        return b'"cache_control"' in self.body


def text_of(raw: Raw) -> str:
    """A raw member that should be a string; anything else, absence included, is ``""``."""
    data = bytes(raw)
    return msgspec.json.decode(data, type=str) if data.startswith(b'"') else ""


def parse(body: bytes) -> Request:
    """Raises ApiError (400, 413) with the API's wording where it is known."""
    if len(body) > BODY_BYTES_MAX:
        raise ApiError(413)
    members = _members(body)
    for name in ("model", "messages"):
        if name not in members:
            raise invalid(f"{name}: Field required")
    region = bytes(members["messages"])
    return Request(
        body=body,
        members=members,
        model=_typed(members["model"], str, "model"),
        messages=_typed(members["messages"], list[Message], "messages"),
        tools=_typed(members["tools"], list[Tool], "tools") if "tools" in members else [],
        region=region,
        stream=_typed(members["stream"], bool, "stream") if "stream" in members else False,
        max_tokens=(
            _typed(members["max_tokens"], int, "max_tokens") if "max_tokens" in members else None
        ),
    )


def _members(body: bytes) -> dict[str, Raw]:
    try:
        body.decode()
        return msgspec.json.decode(body, type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"The request body is not valid JSON: {error}") from None


def _typed(raw: Raw, type: type[T], name: str) -> T:
    try:
        return msgspec.json.decode(raw, type=type)
    except msgspec.ValidationError as error:
        # msgspec says "… - at `$[0].role`"; the API names the path first, with dots.
        reason, _, path = str(error).partition(" - at `$")
        dotted = path.rstrip("`").replace("[", ".").replace("]", "")
        raise invalid(f"{name}{dotted}: {reason}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid(f"The request body is not valid JSON: {error}") from None


class SearchResult(Struct):
    """One result of a web search, as far as it is checked."""

    encrypted_content: str = ""


def nested(block: Block) -> list[Block]:
    """The content of a tool_result as blocks."""
    content = bytes(block.content)
    if content.startswith(b"["):
        return _typed(block.content, list[Block], "messages: tool_result content")
    if content.startswith(b'"') and content != b'""':
        return [Block(type="text", text=block.content)]
    return []


class _ContentSource(Struct):
    content: Raw = Raw()


def source_blocks(block: Block) -> list[Block]:
    """The blocks of a document whose source is `content`."""
    source = _typed(block.source, _ContentSource, "messages: document source")
    return nested(Block(type=block.type, content=source.content))


def search_results(block: Block) -> list[SearchResult]:
    """The results of a web search; an error object has none."""
    if bytes(block.content).startswith(b"["):
        return _typed(block.content, list[SearchResult], "messages: web_search_tool_result")
    return []
