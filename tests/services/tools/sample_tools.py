"""A module as COUNTERFOIL_TOOLS_MODULE names one."""

from counterfoil.journal.v1.journal_pb2 import Outcome

from services.tools.platform import PlatformTool, PlatformTools, ToolCall, text_outcome


async def run(call: ToolCall) -> Outcome:
    """Answer with the input."""
    return text_outcome(call.input.decode())


def register(registry: PlatformTools) -> None:
    """Offer one tool."""
    registry.register(PlatformTool("sample", "Echoes.", b'{"type":"object"}', run))
