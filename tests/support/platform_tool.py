"""Platform tools that count what they do, for the process that tests them.

`COUNTERFOIL_TOOLS_MODULE=tests.support.platform_tool` registers `note` (always allowed) and
`transfer` (always asks). Each execution is told to the Unix socket `COUNTERFOIL_TEST_EFFECTS`,
which is a side effect that outlives a killed process; the tool returns what the socket answers,
and a picture if the input's text is `PICTURE_TEXT`.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from counterfoil.journal.v1.journal_pb2 import Outcome
from counterfoil.types.v1 import runtime_pb2

from services.tools.platform import PlatformTool, PlatformTools, ToolCall, text_outcome

SOCKET = "COUNTERFOIL_TEST_EFFECTS"
SCHEMA = b'{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}'
DEADLINE_MS = 1_500
PICTURE_TEXT = "a picture"
PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)
"""A PNG of one pixel."""


def register(registry: PlatformTools) -> None:
    """Called by the tools service at each start; a test's process may start several."""
    if registry.find("note", "1") is None:
        registry.register(_tool("note", runtime_pb2.TOOL_POLICY_ALWAYS_ALLOW))
        registry.register(_tool("transfer", runtime_pb2.TOOL_POLICY_ALWAYS_ASK))


def _tool(name: str, policy: runtime_pb2.ToolPolicy.ValueType) -> PlatformTool:
    async def run(call: ToolCall) -> Outcome:
        return await _tell(name, call.input, call.operation_id)

    return PlatformTool(
        name=name,
        description=f"Counts as one {name}.",
        input_schema=SCHEMA,
        run=run,
        policy=policy,
        deadline_ms=DEADLINE_MS,
    )


async def _tell(name: str, input: bytes, operation_id: str) -> Outcome:
    told: dict[str, Any] = {"tool": name, "operation": operation_id, "input": json.loads(input)}
    reader, writer = await asyncio.open_unix_connection(os.environ[SOCKET])
    try:
        writer.write(json.dumps(told).encode() + b"\n")
        answer = await reader.readline()
    finally:
        writer.close()
    if not answer:
        return text_outcome("the other end hung up", is_error=True)
    blocks: list[dict[str, Any]] = [{"type": "text", "text": json.loads(answer)}]
    if told["input"].get("text") == PICTURE_TEXT:
        source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
        blocks.append({"type": "image", "source": source})
    return Outcome(content=json.dumps(blocks).encode())


@dataclass(frozen=True)
class Effect:
    """One execution."""

    tool: str
    operation: str
    input: Any


@dataclass
class Effects:
    """What platform tools did, counted outside of the product. Executions wait while `held`."""

    path: Path
    all: list[Effect] = field(default_factory=list[Effect])
    _come: asyncio.Condition = field(default_factory=asyncio.Condition)
    _free: asyncio.Event = field(default_factory=asyncio.Event)

    def hold(self) -> None:
        """Counted executions get no answer from now on."""
        self._free.clear()

    def release(self) -> None:
        """They get it."""
        self._free.set()

    def by_operation(self) -> dict[str, int]:
        """How often each operation was executed."""
        counts: dict[str, int] = {}
        for effect in self.all:
            counts[effect.operation] = counts.get(effect.operation, 0) + 1
        return counts

    async def wait(self, number: int) -> None:
        """Returns when `number` executions were told."""
        async with asyncio.timeout(20), self._come:
            await self._come.wait_for(lambda: len(self.all) >= number)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One execution."""
        try:
            with suppress(ConnectionError):
                line = await reader.readline()
                if line.endswith(b"\n"):  # else the process died before it told anything
                    await self._effect(json.loads(line), writer)
        finally:
            writer.close()

    async def _effect(self, told: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.all.append(Effect(told["tool"], told["operation"], told["input"]))
        async with self._come:
            self._come.notify_all()
        await self._free.wait()
        text = f"{told['tool']} done: {told['input'].get('text')}"
        writer.write(json.dumps(text).encode() + b"\n")
        await writer.drain()


@asynccontextmanager
async def counting(path: Path) -> AsyncGenerator[Effects]:
    """Listens on `path` for as long as the block runs."""
    effects = Effects(path)
    effects.release()
    server = await asyncio.start_unix_server(effects.serve, str(path))
    async with server:
        yield effects
        effects.release()
