"""An event of a session in a few words, for a line of a terminal. Pure."""

import json
from collections.abc import Mapping
from typing import Any

CHARS_MAX = 100

_NAMED = ("name", "tool_use_id", "custom_tool_use_id", "model_request_start_id", "title")


def summary(event: Mapping[str, Any]) -> str:
    """What happened, on one line of at most CHARS_MAX characters."""
    for words in (_stop(event), _error(event), _text(event), _input(event), _named(event)):
        if words:
            return _short(words)
    return ""


def _stop(event: Mapping[str, Any]) -> str:
    stop: Mapping[str, Any] = event.get("stop_reason") or {}
    if not stop:
        return ""
    waits: list[str] = stop.get("event_ids") or []
    return f"{stop.get('type')}: waits for {', '.join(waits)}" if waits else str(stop.get("type"))


def _error(event: Mapping[str, Any]) -> str:
    error: Mapping[str, Any] = event.get("error") or {}
    return ": ".join(str(error[key]) for key in ("type", "message") if error.get(key))


def _text(event: Mapping[str, Any]) -> str:
    blocks: list[Mapping[str, Any]] = event.get("content") or []
    return " ".join(str(b.get("text") or f"[{b.get('type')}]") for b in blocks)


def _input(event: Mapping[str, Any]) -> str:
    if "input" not in event:
        return ""
    return f"{event.get('name', '')} {json.dumps(event['input'], ensure_ascii=False)}".strip()


def _named(event: Mapping[str, Any]) -> str:
    return next((str(event[key]) for key in _NAMED if event.get(key)), "")


def _short(words: str) -> str:
    line = printable(" ".join(words.split()))
    return line if len(line) <= CHARS_MAX else line[: CHARS_MAX - 1] + "…"


def printable(text: str) -> str:
    """The text without what could steer a terminal: somebody else wrote it."""
    return "".join(character if character.isprintable() else " " for character in text)
