"""Platform tools: what this process itself can execute. Ships empty.

A deployment adds tools through the setting COUNTERFOIL_TOOLS_MODULE, a module with a function
`register(registry)`, which is called once at start. Registered tools are bound in every new session
of the process, besides the agent's own: the agent contract has no entry that could name one, and
an operator who installs a tool wants it offered.
"""

import importlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from counterfoil.journal.v1.journal_pb2 import Outcome
from counterfoil.types.v1 import runtime_pb2
from counterfoil.types.v1.reference_pb2 import ThreadRef

from foundation.storage import ConfigurationError

Policy = runtime_pb2.ToolPolicy.ValueType


class ToolCall(NamedTuple):
    """One call: the input's exact JSON bytes, an id that never changes for it, and whose it is."""

    input: bytes
    operation_id: str
    thread: ThreadRef


Run = Callable[[ToolCall], Awaitable[Outcome]]

_DEADLINE_MS = 60_000


def text_outcome(text: str, *, is_error: bool = False) -> Outcome:
    """An outcome with one text block."""
    block = {"type": "text", "text": text}
    return Outcome(content=json.dumps([block], ensure_ascii=False).encode(), is_error=is_error)


@dataclass(frozen=True)
class PlatformTool:
    """One tool that the platform executes.

    `idempotent` promises that a repeat with the same operation id has no further effect.
    `deadline_ms` is what one call may take, measured from before it is recorded as started.
    """

    name: str
    description: str
    input_schema: bytes
    run: Run
    version: str = "1"
    policy: Policy = runtime_pb2.TOOL_POLICY_ALWAYS_ALLOW
    idempotent: bool = False
    deadline_ms: int = _DEADLINE_MS

    def binding(self, policy: Policy | None = None) -> runtime_pb2.ToolBinding:
        """What a session pins of it."""
        return runtime_pb2.ToolBinding(
            name=self.name,
            owner=runtime_pb2.TOOL_OWNER_PLATFORM_MANAGED,
            policy=self.policy if policy is None else policy,
            description=self.description,
            input_schema=self.input_schema,
            version=self.version,
            deadline_ms=self.deadline_ms,
        )


class PlatformTools:
    """The platform tools of one process, by name, in the order of their registration."""

    def __init__(self) -> None:
        self._tools: dict[str, PlatformTool] = {}

    def register(self, tool: PlatformTool) -> None:
        """Offer a tool. Raises ConfigurationError when the name is taken."""
        if tool.name in self._tools:
            raise ConfigurationError(f"the platform tool {tool.name!r} is registered twice")
        self._tools[tool.name] = tool

    def with_also(self, tool: PlatformTool) -> "PlatformTools":
        """These tools and one more. Raises ConfigurationError when its name is taken."""
        more = PlatformTools()
        for one in (*self.all(), tool):
            more.register(one)
        return more

    def find(self, name: str, version: str) -> PlatformTool | None:
        """The tool with exactly this version."""
        tool = self._tools.get(name)
        return tool if tool is not None and tool.version == version else None

    def all(self) -> tuple[PlatformTool, ...]:
        """Every tool."""
        return tuple(self._tools.values())


platform_tools = PlatformTools()
"""The registry of this process."""


def load_module(registry: PlatformTools, name: str) -> None:
    """Import the module that COUNTERFOIL_TOOLS_MODULE names and let it register its tools."""
    try:
        module: Any = importlib.import_module(name)
        register = module.register
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"COUNTERFOIL_TOOLS_MODULE is {name!r}, which has no register(registry): {error}"
        ) from error
    register(registry)
