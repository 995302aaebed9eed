"""Which step answers a request. Pure but for reading a scenario file.

A script is a list of steps. The step index counts the assistant messages behind the place that
carries the script, so the same request always meets the same step, whoever sends it and when.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from offline_model.errors import ApiError, invalid
from offline_model.requests import Message, Request, nested, text_of

T = TypeVar("T")

MARKER = "offline-script: "
MODEL_PREFIX = "offline/"
DEFAULT = "default"
_SCENARIO_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class ErrorSpec(Struct, forbid_unknown_fields=True):
    """An HTTP error. ``body`` replaces the JSON body (what a proxy in between would say)."""

    status: int = 500
    type: str | None = None
    message: str | None = None
    retry_after: int | float | None = None
    should_retry: bool | None = None
    body: str | None = None


class StreamError(Struct, forbid_unknown_fields=True):
    """An ``error`` event after ``after`` deltas; then the stream ends."""

    after: int = 0
    type: str = "overloaded_error"
    message: str = "Overloaded"


class Cut(Struct, forbid_unknown_fields=True):
    """The stream stops after ``after`` deltas, without message_stop.

    ``end`` closes the body properly, ``reset`` drops the connection.
    """

    after: int = 0
    how: Literal["end", "reset"] = "end"


class Hold(Struct, forbid_unknown_fields=True):
    """Wait for the gate ``name``, before the headers or after ``after`` deltas."""

    name: str
    after: int | None = None


class ExtraEvent(Struct, forbid_unknown_fields=True):
    """An event of a type that clients do not know, sent after ``after`` deltas."""

    event: str
    data: Raw
    after: int = 0


class Step(Struct, forbid_unknown_fields=True):
    """One scripted answer; every member is optional. README.md documents each."""

    content: list[Raw] = []
    stop_reason: str | UnsetType | None = UNSET
    stop_sequence: str | None = None
    stop_details: Raw = Raw(b"null")
    usage: dict[str, Raw] = {}
    message: dict[str, Raw] = {}
    message_delta: dict[str, Raw] = {}
    headers: dict[str, str] = {}
    chunks: int | None = None
    chunk_chars: int = 40
    delay_ms: float = 0
    chunk_delay_ms: float = 0
    hold: str | Hold | None = None
    ping_every: int = 0
    extra_events: list[ExtraEvent] = []
    unknown_delta: bool = False
    error: ErrorSpec | None = None
    overflow: Literal[400, 413] | None = None
    window_tokens: int | None = None
    disconnect: bool = False
    stream_error: StreamError | None = None
    cut: int | Cut | None = None
    stall: int | None = None
    times: int | None = None
    count_tokens: int | None = None


class Scenario(Struct, forbid_unknown_fields=True):
    """A scenario file that is an object; a bare list of steps is one too."""

    steps: list[Raw]
    window_tokens: int | None = None


class Chosen(Struct):
    """A step and where it came from, for example ``inline:2``; no step where the default behaviour
    answers. ``window_tokens`` is the scenario's."""

    step: Step | None
    origin: str
    window_tokens: int | None = None


def choose(request: Request, scenarios: Path | None) -> Chosen:
    """What the scripts say to this request.

    Raises ApiError: 404 for a scenario that does not exist, 400 for a script that is wrong.
    """
    inline = _inline(request.messages)
    if inline is not None:
        steps, index = inline
        return _pick(_steps(steps, "offline-script"), index, "inline", None)
    if not request.model.startswith(MODEL_PREFIX):
        return Chosen(None, DEFAULT)
    name = request.model.removeprefix(MODEL_PREFIX)
    scenario = _scenario(name, scenarios, request.model)
    index = _assistants(request.messages)
    return _pick(scenario.steps, index, name, scenario.window_tokens)


def _pick(steps: list[Raw], index: int, origin: str, window_tokens: int | None) -> Chosen:
    if index >= len(steps):
        return Chosen(None, DEFAULT, window_tokens)
    step = _step(steps[index], f"{origin}: step {index}")
    return Chosen(step, f"{origin}:{index}", window_tokens)


def _inline(messages: list[Message]) -> tuple[str, int] | None:
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role != "user":
            continue
        for text in reversed(list(_texts(messages[index]))):
            if text.startswith(MARKER):
                return text[len(MARKER) :], _assistants(messages[index:])
    return None


def _texts(message: Message) -> Iterator[str]:
    """The texts of a user message, those of its results included."""
    for block in message.blocks():
        if block.type == "text":
            yield text_of(block.text)
        elif block.type == "tool_result":
            yield from (text_of(part.text) for part in nested(block) if part.type == "text")


def _assistants(messages: list[Message]) -> int:
    return sum(message.role == "assistant" for message in messages)


def _scenario(name: str, scenarios: Path | None, model: str) -> Scenario:
    if scenarios is None or not _SCENARIO_NAME.fullmatch(name):
        raise ApiError(404, f"model: {model}")
    try:
        text = (scenarios / f"{name}.json").read_text()
    except FileNotFoundError:
        raise ApiError(404, f"model: {model}") from None
    if text.lstrip().startswith("["):
        return Scenario(_steps(text, name))
    return _decoded(text.encode(), Scenario, name)


def _steps(text: str, where: str) -> list[Raw]:
    return _decoded(text.encode(), list[Raw], where)


def _step(raw: Raw, where: str) -> Step:
    data = bytes(raw)
    if data.startswith(b'"'):
        return Step(content=[raw])
    return _decoded(data, Step, where)


def _decoded(data: bytes, type: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(data, type=type)
    except msgspec.DecodeError as error:
        raise invalid(f"{where}: {error}") from None
