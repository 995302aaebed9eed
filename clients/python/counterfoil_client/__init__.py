"""Typed asynchronous client of Counterfoil over gRPC. `Counterfoil` is where to begin."""

from counterfoil_client.connection import Counterfoil, CustomTool
from counterfoil_client.events import (
    ClientEvent,
    Event,
    interrupt,
    message,
    tool_confirmation,
    tool_result,
)
from counterfoil_client.failures import RefusedError, UnavailableError
from counterfoil_client.session import Session

__all__ = [
    "ClientEvent",
    "Counterfoil",
    "CustomTool",
    "Event",
    "RefusedError",
    "Session",
    "UnavailableError",
    "interrupt",
    "message",
    "tool_confirmation",
    "tool_result",
]
