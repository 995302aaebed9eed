"""From a scripted block to what goes on the wire: exact bytes, streamed and whole. Pure.

Raw members are spliced, never decoded and encoded again, so 1.10, 1e400, key order and spaces
arrive as they were written in the script.
"""

import base64
from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct

from offline_model import seals
from offline_model.errors import invalid

_CONTROL = frozenset(("input_raw", "chunks", "chunk_chars", "unknown_delta"))
_TOOL_ID = {"tool_use": "toolu_01", "server_tool_use": "srvtoolu_01", "mcp_tool_use": "mcptoolu_01"}


class AnswerBlock(Struct):
    """``start`` opens the block in a stream, ``deltas`` follow; ``whole`` is it, unstreamed."""

    type: str
    start: bytes
    deltas: list[bytes]
    whole: bytes
    id: str = ""


class Pieces(Struct):
    """How texts are split: ``chunks`` equal pieces, else pieces of ``chunk_chars`` characters."""

    chunks: int | None
    chunk_chars: int

    def split(self, text: str) -> list[str]:
        """The pieces of ``text``; none when it is empty."""
        if not text:
            return []
        size = -(-len(text) // self.chunks) if self.chunks else self.chunk_chars
        size = max(1, size)
        return [text[at : at + size] for at in range(0, len(text), size)]


class _Source(Struct):
    """A block of the script: members in order, and what the builders need around them."""

    type: str
    members: dict[str, Raw]
    pieces: Pieces
    default_id: str
    server_use: str

    def text(self, name: str, default: str = "") -> str:
        raw = self.members.get(name)
        return default if raw is None else msgspec.json.decode(raw, type=str)


def build(raws: list[Raw], pieces: Pieces, id_seed: str) -> list[AnswerBlock]:
    """The blocks of one answer. Raises ApiError 400 when the script's block is wrong."""
    out: list[AnswerBlock] = []
    server_use = ""
    for index, raw in enumerate(raws):
        try:
            block = _build(raw, pieces, f"{id_seed}:{index}", server_use)
        except msgspec.DecodeError as error:
            raise invalid(f"script: content.{index}: {error}") from None
        if block.type == "server_tool_use":
            server_use = block.id
        out.append(block)
    return out


def text_block(text: str) -> Raw:
    """A scripted text."""
    return Raw(msgspec.json.encode({"type": "text", "text": text}))


def tool_use_block(name: str, input_json: bytes) -> Raw:
    """A scripted call with an exact input."""
    return Raw(
        emit({"type": b'"tool_use"', "name": msgspec.json.encode(name), "input": input_json})
    )


def emit(members: dict[str, bytes]) -> bytes:
    """A compact JSON object of already encoded members."""
    return b"{%s}" % b",".join(msgspec.json.encode(k) + b":" + v for k, v in members.items())


def _build(raw: Raw, pieces: Pieces, seed: str, server_use: str) -> AnswerBlock:
    data = bytes(raw)
    if data.startswith(b'"'):
        raw = text_block(msgspec.json.decode(data, type=str))
    members = msgspec.json.decode(raw, type=dict[str, Raw])
    if set(members) == {"raw"}:
        return _verbatim(members["raw"])
    type = msgspec.json.decode(members.get("type", Raw(b'"text"')), type=str)
    builder = _BUILDERS.get(type)
    if builder is None:
        return _verbatim(raw)
    own = msgspec.convert(
        {k: msgspec.json.decode(members[k]) for k in ("chunks", "chunk_chars") if k in members},
        type=_OwnPieces,
    )
    split = Pieces(
        own.chunks or (None if own.chunk_chars else pieces.chunks),
        own.chunk_chars or pieces.chunk_chars,
    )
    default_id = _TOOL_ID.get(type, "") + seals.token(type, seed)
    block = builder(_Source(type, members, split, default_id, server_use))
    if bytes(members.get("unknown_delta", Raw())) == b"true":
        pack(block)
    return block


class _OwnPieces(Struct):
    chunks: int | None = None
    chunk_chars: int | None = None


def pack(block: AnswerBlock) -> None:
    """Move one delta into a type that no client knows; who skips it has lost content."""
    at = min(1, len(block.deltas) - 1)
    if at >= 0:
        packed = base64.b64encode(block.deltas[at]).decode()
        block.deltas[at] = msgspec.json.encode({"type": "packed_delta", "packed": packed})


def _verbatim(raw: Raw) -> AnswerBlock:
    data = bytes(raw)
    type = msgspec.json.decode(raw, type=_Typed).type
    return AnswerBlock(type, start=data, deltas=[], whole=data)


class _Typed(Struct):
    type: str = ""


def _members(source: _Source, **values: bytes) -> dict[str, bytes]:
    """The script's members in its order; ``values`` that it left out follow their predecessor."""
    out = {k: bytes(v) for k, v in source.members.items() if k not in _CONTROL}
    if "type" not in out:
        out = {"type": msgspec.json.encode(source.type), **out}
    before = "type"
    for name, value in values.items():
        if name not in out:
            names = list(out)
            at = names.index(before) + 1
            out = {k: value if k == name else out[k] for k in (*names[:at], name, *names[at:])}
        before = name
    return out


def _text(source: _Source) -> AnswerBlock:
    members = _members(source, text=b'""')
    deltas = [
        msgspec.json.encode({"type": "text_delta", "text": piece})
        for piece in source.pieces.split(source.text("text"))
    ]
    opened = {**members, "text": b'""'}
    citations = bytes(members.get("citations", b""))
    if citations.startswith(b"["):
        opened["citations"] = b"[]"
        deltas += [
            emit({"type": b'"citations_delta"', "citation": bytes(citation)})
            for citation in msgspec.json.decode(citations, type=list[Raw])
        ]
    return AnswerBlock("text", emit(opened), deltas, emit(members))


def _thinking(source: _Source) -> AnswerBlock:
    text = source.text("thinking")
    signature = source.text("signature", seals.signature(text))
    encoded = msgspec.json.encode(signature)
    members = _members(source, thinking=b'""', signature=encoded)
    deltas = [
        msgspec.json.encode({"type": "thinking_delta", "thinking": piece})
        for piece in source.pieces.split(text)
    ]
    deltas.append(emit({"type": b'"signature_delta"', "signature": encoded}))
    opened = {**members, "thinking": b'""', "signature": b'""'}
    return AnswerBlock("thinking", emit(opened), deltas, emit(members))


def _redacted(source: _Source) -> AnswerBlock:
    data = seals.sealed("redacted_thinking", source.default_id)
    whole = emit(_members(source, data=msgspec.json.encode(data)))
    return AnswerBlock("redacted_thinking", whole, [], whole)


def _tool(source: _Source) -> AnswerBlock:
    """``input_raw`` is streamed as it is; where it is no JSON value, the unstreamed answer holds
    it under ``INVALID_JSON``, as the API asks its clients to do. An empty one is a call without
    arguments, for which the API streams one empty piece."""
    id = source.text("id", source.default_id)
    given = bytes(source.members.get("input", Raw(b"{}")))
    text = source.text("input_raw", given.decode())
    members = _members(source, id=msgspec.json.encode(id), name=b'""', input=b"{}")
    members["input"] = _input_whole(text)
    pieces = ["", *source.pieces.split(text)]
    deltas = [
        msgspec.json.encode({"type": "input_json_delta", "partial_json": piece}) for piece in pieces
    ]
    return AnswerBlock(source.type, emit({**members, "input": b"{}"}), deltas, emit(members), id)


def _input_whole(text: str) -> bytes:
    if not text:
        return b"{}"
    try:
        # Raw skips over the value without reading numbers, so 1e400 stays legal.
        msgspec.json.decode(f"[{text}]", type=tuple[Raw])
    except msgspec.DecodeError:
        return msgspec.json.encode({"INVALID_JSON": text})
    return text.encode()


def _search_result(source: _Source) -> AnswerBlock:
    members = _members(source, tool_use_id=msgspec.json.encode(source.server_use), content=b"[]")
    if members["content"].startswith(b"["):
        found = msgspec.json.decode(members["content"], type=list[dict[str, Raw]])
        members["content"] = b"[%s]" % b",".join(_found(one) for one in found)
    whole = emit(members)
    return AnswerBlock(source.type, whole, [], whole)


def _found(one: dict[str, Raw]) -> bytes:
    """One search result; an encrypted_content that is left out is sealed over the URL."""
    url = bytes(one.get("url", Raw(b'""'))).decode()
    out = {"type": b'"web_search_result"', **{k: bytes(v) for k, v in one.items()}}
    if "encrypted_content" not in out:
        out["encrypted_content"] = msgspec.json.encode(seals.sealed("web_search_result", url))
    return emit(out)


_BUILDERS: dict[str, Callable[[_Source], AnswerBlock]] = {
    "text": _text,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "tool_use": _tool,
    "server_tool_use": _tool,
    "mcp_tool_use": _tool,
    "web_search_tool_result": _search_result,
}
