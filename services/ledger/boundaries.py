"""Where a history is closed: behind a finished turn, before the next one's input. Pure."""

from foundation.errors import Failure, invalid

VISIBLE = (
    "agent.custom_tool_use",
    "agent.mcp_tool_result",
    "agent.mcp_tool_use",
    "agent.message",
    "agent.thinking",
    "agent.tool_result",
    "agent.tool_use",
    "system.message",
    "user.custom_tool_result",
    "user.message",
    "user.tool_confirmation",
    "user.tool_result",
)
"""Types of the events that say what the model was told and what it answered: behind the last one
of a finished turn nothing of that turn reaches the history any more."""

NAMED = (*VISIBLE, "session.status_idle")
"""Types of the events that a boundary is named by."""

_PATH = "at_event_id"


def unknown(event_id: str) -> Failure:
    """The session has no such event, or the model has not been told of it."""
    return invalid(_PATH, f"{event_id[:80]} is no processed event of this session")


def inside(event_id: str, before: str | None, after: str | None) -> Failure:
    """The event stands inside a turn; the boundaries next to it, as far as there are any."""
    near = [
        f"the nearest event {side} it is {id_}"
        for side, id_ in (("before", before), ("behind", after))
        if id_
    ]
    near = near or ["no turn before it is finished: leave it out"]
    return invalid(
        _PATH,
        f"{event_id} stands inside a turn, and a fork begins behind a finished one; "
        + ", ".join(near),
    )
