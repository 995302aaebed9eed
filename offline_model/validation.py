"""The rules of the Messages API that a wrong replay would break. Pure."""

import re

from offline_model import seals
from offline_model.errors import invalid
from offline_model.requests import (
    Block,
    Message,
    Request,
    nested,
    search_results,
    text_of,
)

TOP_LEVEL = frozenset(
    {
        "billing_policy",
        "cache_control",
        "compaction",
        "container",
        "context_management",
        "diagnostics",
        "fallback_credit_token",
        "fallbacks",
        "inference_geo",
        "max_tokens",
        "mcp_servers",
        "messages",
        "metadata",
        "model",
        "output_config",
        "output_format",
        "prefill",
        "service_tier",
        "speed",
        "stop_sequences",
        "stream",
        "system",
        "temperature",
        "thinking",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
        "user_profile_id",
    }
)
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ONLY_SERVER = "_tool_result"


def check(request: Request, *, counting: bool = False) -> None:
    """Raises ApiError 400 for the first broken rule; ``counting``: no ``max_tokens`` needed."""
    _check_members(request, counting)
    _check_tools(request)
    messages = request.messages
    if not messages:
        raise invalid("messages: at least one message is required")
    for index, message in enumerate(messages):
        _check_role(messages, index)
        _check_content(index, message, last=index == len(messages) - 1)
    _check_client_tools(messages)
    _check_server_tools(messages)


def _check_members(request: Request, counting: bool) -> None:
    for name in request.members:
        if name not in TOP_LEVEL:
            raise invalid(f"{name}: Extra inputs are not permitted")
    if not request.model:
        raise invalid("model: String should have at least 1 character")
    if counting:
        return
    if request.max_tokens is None:
        raise invalid("max_tokens: Field required")
    if request.max_tokens < 1:
        raise invalid("max_tokens: Input should be greater than or equal to 1")


def _check_tools(request: Request) -> None:
    names: set[str] = set()
    for index, tool in enumerate(request.tools):
        if tool.type in (None, "custom"):
            if not _TOOL_NAME.fullmatch(tool.name):
                raise invalid(
                    f"tools.{index}.custom.name: String should match pattern"
                    " '^[a-zA-Z0-9_-]{1,128}$'"
                )
            if not bytes(tool.input_schema).startswith(b"{"):
                raise invalid(f"tools.{index}.custom.input_schema: Field required")
        if tool.name in names:
            raise invalid("tools: Tool names must be unique.")
        names.add(tool.name)


def _check_role(messages: list[Message], index: int) -> None:
    role = messages[index].role
    if role not in ("user", "assistant", "system"):
        raise invalid(f"messages.{index}.role: Input should be 'user' or 'assistant'")
    if index == 0 and role != "user":
        raise invalid('messages: first message must use the "user" role')
    if role == "system":
        follower = messages[index + 1].role if index + 1 < len(messages) else "assistant"
        if messages[index - 1].role != "user" or follower != "assistant":
            raise invalid(
                f"messages.{index}: a `system` message must directly follow a user turn and"
                " be the last message or be followed by an `assistant` message"
            )


def _check_content(index: int, message: Message, *, last: bool) -> None:
    blocks = message.blocks() if message.content else []
    if not blocks and not (last and message.role == "assistant"):
        raise invalid(
            f"messages.{index}: all messages must have non-empty content except for the"
            " optional final assistant message"
        )
    for place, block in enumerate(blocks):
        where = f"messages.{index}.content.{place}"
        if block.type == "text":
            _check_text(where, block)
        elif block.type == "tool_result":
            _check_result_content(where, block)
        elif block.type in ("thinking", "redacted_thinking"):
            _check_thinking(where, block)
        elif block.type == "web_search_tool_result":
            _check_search_results(where, block)
        if message.role != "assistant" and block.type in ("tool_use", "thinking"):
            raise invalid(f"{where}: `{block.type}` blocks can only be in `assistant` messages")
        if message.role != "user" and block.type == "tool_result":
            raise invalid(f"{where}: `tool_result` blocks can only be in `user` messages")
    final = blocks[-1] if message.role == "assistant" and blocks else None
    if final and final.type in ("thinking", "redacted_thinking"):
        raise invalid(
            f"messages.{index}: The final block in an assistant message cannot be `{final.type}`."
        )
    prefill = final if last else None
    if prefill and prefill.type == "text" and text_of(prefill.text)[-1:].isspace():
        raise invalid("messages: final assistant content cannot end with trailing whitespace")


def _check_text(where: str, block: Block) -> None:
    if not bytes(block.text):
        raise invalid(f"{where}.text.text: Field required")
    text = text_of(block.text)
    if not text:
        raise invalid("messages: text content blocks must be non-empty")
    if text.isspace():
        raise invalid("messages: text content blocks must contain non-whitespace text")


def _check_result_content(where: str, block: Block) -> None:
    if not text_of(block.tool_use_id):
        raise invalid(f"{where}.tool_result.tool_use_id: Field required")
    for part in nested(block):
        if part.type == "text" and not text_of(part.text):
            raise invalid("messages: text content blocks must be non-empty")


def _check_thinking(where: str, block: Block) -> None:
    if block.type == "redacted_thinking":
        if not seals.sealed_valid(block.type, text_of(block.data)):
            raise invalid(f"{where}: Invalid `data` in `redacted_thinking` block")
        return
    if not bytes(block.signature):
        raise invalid(f"{where}.thinking.signature: Field required")
    if not seals.signature_valid(text_of(block.thinking), text_of(block.signature)):
        raise invalid(f"{where}: Invalid `signature` in `thinking` block")


def _check_search_results(where: str, block: Block) -> None:
    for found in search_results(block):
        if not seals.sealed_valid("web_search_result", found.encrypted_content):
            raise invalid(f"{where}: Invalid `encrypted_content` in `search_result` block")


def _check_client_tools(messages: list[Message]) -> None:
    for index, message in enumerate(messages):
        if message.role != "user":
            continue
        previous = messages[index - 1] if index else None
        asked = _ids(previous, "tool_use") if previous and previous.role == "assistant" else []
        _check_answers(index, message.blocks(), asked)
    for index, message in enumerate(messages):
        used = _ids(message, "tool_use") if message.role == "assistant" else []
        _check_unique(index, message, used)
        follower = messages[index + 1] if index + 1 < len(messages) else None
        missing = _unanswered(used, follower)
        if missing:
            raise invalid(
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks"
                f" immediately after: {', '.join(missing)}. Each `tool_use` block must have a"
                " corresponding `tool_result` block in the next message."
            )


def _check_answers(index: int, blocks: list[Block], asked: list[str]) -> None:
    seen: set[str] = set()
    for place, block in enumerate(blocks):
        if block.type != "tool_result":
            continue
        id = text_of(block.tool_use_id)
        if id not in asked:
            raise invalid(
                f"messages.{index}.content.{place}: unexpected `tool_use_id` found in"
                f" `tool_result` blocks: {id}. Each `tool_result` block must have a"
                " corresponding `tool_use` block in the previous message."
            )
        if id in seen:
            raise invalid(
                f"messages.{index}.content.{place}: each tool_use must have a single result."
                f" Found multiple `tool_result` blocks with id: {id}"
            )
        seen.add(id)


def _check_unique(index: int, message: Message, used: list[str]) -> None:
    if len(set(used)) == len(used):
        return
    seen: set[str] = set()
    for place, block in enumerate(message.blocks()):
        if block.type == "tool_use":
            if text_of(block.id) in seen:
                raise invalid(f"messages.{index}.content.{place}: `tool_use` ids must be unique")
            seen.add(text_of(block.id))


def _unanswered(used: list[str], follower: Message | None) -> list[str]:
    """Only results at the very start of the next user message answer a call."""
    answered: set[str] = set()
    if follower and follower.role == "user":
        for block in follower.blocks():
            if block.type != "tool_result":
                break
            answered.add(text_of(block.tool_use_id))
    return [id for id in used if id not in answered]


def _check_server_tools(messages: list[Message]) -> None:
    """A server tool's result follows its use within one run of assistant messages.

    The last run may be open (``pause_turn``), and so may a run that also calls client tools.
    """
    used: dict[str, tuple[str, str]] = {}
    for index, message in enumerate(messages):
        if message.role != "assistant":
            if message.role == "user" and used and not _ids(messages[index - 1], "tool_use"):
                id, (where, name) = next(iter(used.items()))
                raise invalid(
                    f"{where}: `{name}` tool use with id `{id}` was found without a"
                    f" corresponding `{name}{_ONLY_SERVER}` block"
                )
            continue
        for place, block in enumerate(message.blocks()):
            where = f"messages.{index}.content.{place}"
            if block.type == "server_tool_use":
                used[text_of(block.id)] = (where, text_of(block.name))
            elif block.type in SERVER_RESULTS:
                id = text_of(block.tool_use_id)
                if used.pop(id, None) is None:
                    raise invalid(
                        f"{where}: unexpected `tool_use_id` found in `{block.type}` blocks: {id}."
                        f" Each `{block.type}` block must have a corresponding"
                        " `server_tool_use` block before it."
                    )


SERVER_RESULTS = frozenset(
    name + _ONLY_SERVER
    for name in (
        "web_search",
        "web_fetch",
        "code_execution",
        "bash_code_execution",
        "text_editor_code_execution",
        "tool_search",
    )
)


def _ids(message: Message, type: str) -> list[str]:
    if isinstance(message.content, str):
        return []
    return [text_of(block.id) for block in message.content if block.type == type]
