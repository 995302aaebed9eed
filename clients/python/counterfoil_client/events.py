"""Events of a session: those that a client sends, and those that it gets."""

import json
from dataclasses import dataclass
from typing import Any

from counterfoil_client.gen.counterfoil.ledger.v1 import (
    ClientEvent,
    ConfirmationResult,
    ContentBlock,
    TextBlock,
    UserCustomToolResult,
    UserInterrupt,
    UserMessage,
    UserToolConfirmation,
)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the public log. `position` is its place there, 0 where that is not known."""

    position: int
    data: dict[str, Any]

    @classmethod
    def of_json(cls, raw: bytes, position: int = 0) -> "Event":
        """The event that this JSON holds."""
        return cls(position, json.loads(raw))

    @property
    def id(self) -> str:
        """Event id, `sevt_…`; the same for the queued and the processed copy."""
        return self.data["id"]

    @property
    def type(self) -> str:
        """Type: `agent.message`, `session.status_idle`, …"""
        return self.data["type"]

    @property
    def queued(self) -> bool:
        """Whether the event was accepted, but has not taken effect yet."""
        return self.data["processed_at"] is None

    @property
    def text(self) -> str:
        """The texts of the content, joined."""
        blocks: list[dict[str, Any]] = self.data.get("content") or []
        return "".join(block.get("text", "") for block in blocks)

    @property
    def stop_reason(self) -> str | None:
        """Why the session waits (`end_turn`, `requires_action`, …); None unless it does."""
        return self.data["stop_reason"]["type"] if self.type == "session.status_idle" else None

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The ids of the use events that the session waits for."""
        stop: dict[str, Any] = self.data.get("stop_reason") or {}
        return tuple(stop.get("event_ids", ()))


def _content(text: str) -> list[ContentBlock]:
    return [ContentBlock(text=TextBlock(text=text))]


def message(text: str) -> ClientEvent:
    """A message of the user."""
    return ClientEvent(user_message=UserMessage(content=_content(text)))


def interrupt() -> ClientEvent:
    """Ends the turn that runs or waits."""
    return ClientEvent(user_interrupt=UserInterrupt())


def tool_result(use: Event, text: str, *, is_error: bool = False) -> ClientEvent:
    """The answer to an `agent.custom_tool_use`."""
    return ClientEvent(
        user_custom_tool_result=UserCustomToolResult(
            custom_tool_use_id=use.id, content=_content(text), is_error=is_error
        )
    )


def tool_confirmation(use: Event, *, allow: bool, deny_message: str | None = None) -> ClientEvent:
    """The answer to an `agent.tool_use` that asks for permission."""
    result = ConfirmationResult.ALLOW if allow else ConfirmationResult.DENY
    return ClientEvent(
        user_tool_confirmation=UserToolConfirmation(
            tool_use_id=use.id, result=result, deny_message=deny_message
        )
    )


__all__ = ["ClientEvent", "Event", "interrupt", "message", "tool_confirmation", "tool_result"]
