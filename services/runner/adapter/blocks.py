"""One content block of a streamed answer: the exact block that the provider would send whole. Pure.

A block begins as the raw object of `content_block_start`. Members that the deltas complete are
encoded once; every other member stays the provider's bytes, in the provider's order.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from foundation.json import InvalidJson, items, members, parse
from foundation.json.exact import RawJson
from services.runner.adapter.failures import UnknownDelta, bad_answer

INVALID_INPUT = "INVALID_JSON"
"""The member under which the API asks clients to return an input that is no JSON object."""

_TEXTS = {"text_delta": "text", "thinking_delta": "thinking"}


def joined(found: Mapping[str, RawJson]) -> bytes:
    """A compact object of members that are JSON already."""
    encode = msgspec.json.encode
    return b"{%s}" % b",".join(encode(key) + b":" + bytes(raw) for key, raw in found.items())


class OpenBlock:
    """A block that still grows."""

    def __init__(self, raw: bytes, value: Any) -> None:
        """`raw` is the checked object of `content_block_start`, `value` the same, parsed."""
        self.value: dict[str, Any] = value if isinstance(value, dict) else {}
        self._raw = raw
        self._texts: dict[str, list[str]] = {}
        self._input: list[str] = []
        self._citations: list[bytes] = []
        self._signature = b""

    @property
    def type(self) -> str:
        """The block's type; empty when it has none."""
        found = self.value.get("type")
        return found if isinstance(found, str) else ""

    def grow(self, delta: Mapping[str, Any], raw: Callable[[], Mapping[str, RawJson]]) -> str:
        """Take one delta (parsed; its raw members on demand); returns what it adds to `text`.

        Raises UnknownDelta for a type that we do not know, ProviderFailure for one without content.
        """
        if not self.value:
            raise bad_answer("a delta continues a block that is no object")
        match delta.get("type"):
            case "text_delta" | "thinking_delta" as type_:
                member = _TEXTS[type_]
                piece = _string(delta, member)
                self._texts.setdefault(member, []).append(piece)
                return piece if member == "text" else ""
            case "input_json_delta":
                self._input.append(_string(delta, "partial_json"))
            case "signature_delta":
                _string(delta, "signature")
                self._signature = bytes(raw()["signature"])
            case "citations_delta":
                if "citation" not in delta:
                    raise bad_answer("a citations_delta has no citation")
                self._citations.append(bytes(raw()["citation"]))
            case _:
                raise UnknownDelta
        return ""

    def finish(self) -> bytes:
        """The block's exact JSON; the start's own bytes when nothing was added."""
        added = self._added()
        if not added:
            return self._raw
        return joined({**members(self._raw), **added})

    def _added(self) -> dict[str, bytes]:
        added: dict[str, bytes] = {}
        for member, pieces in self._texts.items():
            if text := "".join(pieces):
                added[member] = msgspec.json.encode(self.start_text(member) + text)
        if self._signature:
            added["signature"] = self._signature
        if self._citations:
            added["citations"] = b"[%s]" % b",".join([*self._cited(), *self._citations])
        if text := "".join(self._input):
            added["input"] = input_of(text)
        return added

    def start_text(self, member: str) -> str:
        """The text that the block began with, usually none."""
        found = self.value.get(member) or ""
        if not isinstance(found, str):
            raise bad_answer(f"a block's {member} is not a string")
        return found

    def _cited(self) -> list[bytes]:
        if not isinstance(self.value.get("citations"), list):
            return []
        return [bytes(raw) for raw in items(members(self._raw)["citations"])]


def input_of(text: str) -> bytes:
    """The input that a stream spelled: exactly its text if that is a JSON object.

    What a model wrote wrongly stays in history in the form that the API takes back, because a
    history that no provider accepts would end the session.
    """
    raw = text.encode()
    try:
        if isinstance(parse(raw), dict):
            return raw
    except InvalidJson:
        pass
    return joined({INVALID_INPUT: msgspec.json.encode(text)})


def _string(delta: Mapping[str, Any], member: str) -> str:
    found = delta.get(member)
    if not isinstance(found, str):
        raise bad_answer(f"a delta has no {member}")
    return found
