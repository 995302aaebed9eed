"""What a session's definition may hold, and what an update changes of it. Pure."""

from counterfoil.ledger.v1 import session_events_pb2, session_pb2
from counterfoil.registry.v1 import agent_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import masks
from foundation.errors import Failure
from foundation.metadata import patch

_UPDATED = ("title", "metadata", "agent", "budget", "vault_ids")


def check_new(request: session_pb2.CreateSessionRequest) -> None:
    """Refuse by name what a session cannot have here yet."""
    if request.budget:
        raise _unsupported("budget", "budgets are not kept here yet; leave it out")
    if request.resources:
        raise _unsupported("resources", "resources are not mounted here yet; leave them out")
    if request.vault_ids:
        raise _unsupported("vault_ids", "there are no vaults here yet; leave them out")


def check(request: session_pb2.UpdateSessionRequest) -> None:
    """Refuse by name what no update changes."""
    if request.budget:
        raise _unsupported("budget", "budgets are not kept here yet; leave it out")
    if request.vault_ids:
        raise _unsupported("vault_ids", "the vaults of a session cannot be changed")


def named(request: session_pb2.UpdateSessionRequest) -> set[str]:
    """The fields that are to change; raises INVALID_FIELD for a mask that names others."""
    return masks.named(request, _UPDATED)


def apply(
    pinned: session_pb2.Session,
    request: session_pb2.UpdateSessionRequest,
    agent: agent_pb2.SessionAgent | None,
) -> session_events_pb2.SessionUpdated | None:
    """Change `pinned` as the request says; what changed, or None for nothing.

    `agent` is the completed new agent. Raises INVALID_FIELD with the JSON path; `pinned` is then
    not to be stored.
    """
    paths = named(request)
    change = session_events_pb2.SessionUpdated()
    changed = False
    if "title" in paths and pinned.title != request.title:
        pinned.ClearField("title")
        if request.title:
            pinned.title = request.title
        change.title = request.title
        changed = True
    if "metadata" in paths:
        patched = patch(dict(pinned.metadata), request.metadata)
        if patched != dict(pinned.metadata):
            pinned.ClearField("metadata")
            pinned.metadata.update(patched)
            change.metadata.update(patched)
            changed = True
    if agent is not None and agent != pinned.agent:
        pinned.agent.CopyFrom(agent)
        change.agent.CopyFrom(agent)
        changed = True
    return change if changed else None


def _unsupported(path: str, message: str) -> Failure:
    return Failure(reasons.ERROR_REASON_UNSUPPORTED, message, path=path)
