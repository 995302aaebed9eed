"""What is answered when no script says so. A function of the request alone. Pure."""

import msgspec
from msgspec import Raw, Struct

from offline_model import expense
from offline_model.blocks import text_block, tool_use_block
from offline_model.requests import Message, Request, Tool, nested, text_of
from offline_model.scripts import MARKER, Step

QUOTE_CHARS_MAX = 280


def default_step(request: Request) -> Step:
    """The step that the built-in behaviour gives for this request."""
    said = _last_text(request.messages)
    outcomes = _outcomes(request.messages)
    tools = {tool.name: tool for tool in request.tools if tool.type in (None, "custom")}
    if {"decide", "escalate"} <= tools.keys():
        return _gate(said, outcomes)
    if outcomes:
        return Step(content=[text_block(_reported(outcomes))])
    headings = [line for line in said.splitlines() if line.startswith("## ")]
    if len(headings) > 1:
        return Step(content=[text_block(_sections(headings, len(request.messages)))])
    named = [(said.find(f"use {name}"), name) for name in tools if _asks(said, name)]
    if named:
        at, name = min(named)
        given = said[at + len(f"use {name}") :]
        input = _json_after(given) or _example(tools[name])
        return Step(content=[text_block(f"I will use {name}."), tool_use_block(name, input)])
    return Step(content=[text_block(_helpful(said))])


def _gate(said: str, outcomes: list[expense.Outcome]) -> Step:
    if outcomes:
        return Step(content=[text_block(expense.summary(outcomes))])
    found = expense.receipts(said)
    if not found:
        return Step(content=[text_block(_helpful(said))])
    intro = text_block("I checked the receipts; these are the actions that I ask for.")
    return Step(content=[intro, *(tool_use_block(*call) for call in expense.calls(found))])


def _helpful(said: str) -> str:
    if not said or said.startswith(MARKER):
        return "The script has no further step. What should happen next?"
    quote = said if len(said) <= QUOTE_CHARS_MAX else said[:QUOTE_CHARS_MAX] + "…"
    return (
        f"You wrote: “{quote}” I am the offline model: I answer without a provider, and always"
        " the same way. Configure a real model to get a real answer."
    )


def _sections(headings: list[str], messages: int) -> str:
    line = f"- What {messages} messages said about it, as the offline model understood them."
    return "\n\n".join(f"{heading.rstrip()}\n{line}" for heading in headings)


def _reported(outcomes: list[expense.Outcome]) -> str:
    lines = [
        f"{one.tool} {'failed' if one.is_error else 'answered'}: {one.text}" for one in outcomes
    ]
    return "\n".join(["The results are in.", *lines])


def _last_text(messages: list[Message]) -> str:
    """The texts of the user messages behind the last assistant message."""
    texts: list[str] = []
    for message in reversed(messages):
        if message.role == "assistant":
            break
        if message.role == "user":
            own = [text_of(block.text) for block in message.blocks() if block.type == "text"]
            texts[:0] = own
    return "\n".join(texts)


class _Call(Struct):
    receipt_id: str = ""


def _outcomes(messages: list[Message]) -> list[expense.Outcome]:
    """The results in the message behind the last assistant message, in their order."""
    at = max((i for i, message in enumerate(messages) if message.role == "assistant"), default=-1)
    if at < 0 or at + 1 >= len(messages):
        return []
    asked = {text_of(b.id): b for b in messages[at].blocks() if b.type == "tool_use"}
    out: list[expense.Outcome] = []
    for block in messages[at + 1].blocks():
        call = asked.get(text_of(block.tool_use_id))
        if block.type == "tool_result" and call is not None:
            text = "\n".join(text_of(part.text) for part in nested(block) if part.type == "text")
            receipt = _receipt_id(call.input)
            out.append(expense.Outcome(text_of(call.name), receipt, text, bool(block.is_error)))
    return out


def _receipt_id(input: Raw) -> str:
    try:
        return msgspec.json.decode(input, type=_Call).receipt_id
    except msgspec.DecodeError:
        return ""


def _asks(said: str, name: str) -> bool:
    at = said.find(f"use {name}")
    after = said[at + len(f"use {name}") :][:1]
    return at >= 0 and not (after.isalnum() or after in ("_", "-"))


def _json_after(text: str) -> bytes | None:
    """A JSON object that directly follows, exactly as it was written."""
    stripped = text.lstrip(" :\n")
    if not stripped.startswith("{"):
        return None
    for end in (i + 1 for i, char in enumerate(stripped) if char == "}"):
        candidate = stripped[:end].encode()
        try:
            msgspec.json.decode(candidate, type=dict[str, Raw])
        except msgspec.DecodeError:
            continue
        return candidate
    return None


class _Schema(Struct):
    type: str | list[str] = "string"
    enum: list[Raw] = []
    properties: dict[str, Raw] = {}
    required: list[str] = []


_EXAMPLES = {
    "string": b'"example"',
    "integer": b"1",
    "number": b"1.5",
    "boolean": b"true",
    "array": b"[]",
    "null": b"null",
}


def _example(tool: Tool) -> bytes:
    """An input with the required members of the tool's schema."""
    return _example_of(tool.input_schema, 0)


def _example_of(raw: Raw, depth: int) -> bytes:
    try:
        schema = msgspec.json.decode(raw, type=_Schema)
    except msgspec.DecodeError:
        return b"{}"
    if schema.enum:
        return bytes(schema.enum[0])
    kind = schema.type if isinstance(schema.type, str) else (schema.type or ["null"])[0]
    if kind != "object":
        return _EXAMPLES.get(kind, b"null")
    members = {
        name: _example_of(schema.properties.get(name, Raw(b"{}")), depth + 1)
        for name in (schema.required if depth < 8 else [])
    }
    pairs = (msgspec.json.encode(name) + b":" + value for name, value in members.items())
    return b"{%s}" % b",".join(pairs)
