"""A provider whose answers a schedule draws, and that refuses a history that none would take."""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from counterfoil.types.v1 import usage_pb2

from services.runner.adapter import Answer, Piece, ProviderFailure, UnknownDelta
from tests.laws.doubled.network import Net

CUSTOM, PLATFORM, ASK, UNKNOWN = "decide", "note", "transfer", "nothing"
TOOLS = {"c": CUSTOM, "p": PLATFORM, "a": ASK, "u": UNKNOWN}
_ROUNDS_MAX = 2


class Provider:
    """Stands where runners expect the adapter."""

    def __init__(
        self, net: Net, random: Random, kinds: Sequence[str], *, bytes_max: int = 0
    ) -> None:
        self._net = net
        self._random = random
        self._kinds = kinds
        self._bytes_max = bytes_max
        """Larger requests are refused; 0 for none."""
        self.bodies: list[list[dict[str, Any]]] = []
        self.calls = 0
        self.refusals = 0

    async def call(
        self,
        body: bytes,
        *,
        stream: bool,
        on_piece: Callable[[Piece], None],
        betas: Sequence[str] = (),
    ) -> Answer:
        """One answer: first a part of it is shown, then all of it comes."""
        messages: list[dict[str, Any]] = json.loads(body)["messages"]
        self.bodies.append(messages)
        self._check(messages)
        number = self.calls = self.calls + 1
        if self._bytes_max and len(body) > self._bytes_max:
            self.refusals += 1
            await self._net.send(f"provider refuses.{number}", _nothing)
            raise ProviderFailure("overflow", "prompt is too long", retryable=False)
        kind = self._draw(messages)
        text = f"text {number}" if kind == "t" or self._random.random() < 0.6 else ""
        if text and stream:
            self._show(on_piece, text)
        part = self._random.random()
        await self._net.send(f"provider {kind}.{number}", _nothing)
        if part < 0.03 and stream:
            raise UnknownDelta
        return _answer(number, kind, text)

    def _show(self, on_piece: Callable[[Piece], None], text: str) -> None:
        on_piece(Piece(0, "text", ""))
        half = self._random.randint(0, len(text))
        for part in (text[:half], text[half:]):
            if part:
                on_piece(Piece(0, "text", part))

    def _draw(self, messages: list[dict[str, Any]]) -> str:
        rounds = 0
        for message in reversed(messages):
            if message["role"] == "user" and message["content"][0]["type"] != "tool_result":
                break
            rounds += message["role"] == "assistant"
        return "t" if rounds >= _ROUNDS_MAX else self._random.choice(self._kinds)

    def _check(self, messages: list[dict[str, Any]]) -> None:
        """Each call of an answer has its result at the start of the next message."""
        if messages[-1]["role"] != "user":
            self._net.blame("a request ends with an answer")
        for place, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            uses = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
            following = messages[place + 1]["content"] if place + 1 < len(messages) else []
            found = [b["tool_use_id"] for b in following if b["type"] == "tool_result"]
            if found != uses:
                self._net.blame(f"a request has calls {uses} and results {found}")


async def _nothing() -> None:
    return None


def _answer(number: int, kind: str, text: str) -> Answer:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    for place, letter in enumerate(kind.replace("t", "")):
        blocks.append(
            {
                "type": "tool_use",
                "id": f"toolu_{number}_{place}",
                "name": TOOLS[letter],
                "input": {"text": f"{number}.{place}"},
            }
        )
    stop = "end_turn" if kind == "t" else "tool_use"
    usage = {"input_tokens": 10, "output_tokens": 5}
    envelope = {"id": f"msg_{number}", "role": "assistant", "stop_reason": stop, "usage": usage}
    return Answer(
        blocks=tuple(json.dumps(block).encode() for block in blocks),
        envelope=json.dumps(envelope).encode(),
        stop_reason=stop,
        usage=usage_pb2.ModelUsage(input_tokens=10, output_tokens=5),
        provider_request_id=f"req_{number}",
    )
