"""What all stored definitions share: ids that can exist, and what sealing binds them to."""

import re

from counterfoil.registry.v1 import agent_pb2, environment_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure, Reason
from foundation.storage import Record, SealRing

_ID = re.compile(r"[a-z]{1,16}_[0-9a-z]{26}")
Identity = tuple[str | int, ...]


def known(
    id: str,
    what: str,
    *,
    path: str = "",
    reason: "Reason.ValueType" = reasons.ERROR_REASON_NOT_FOUND,
) -> str:
    """The id, unless it cannot be one of ours: such text never reaches the database."""
    if _ID.fullmatch(id) is None:
        raise missing(what, id[:80], path=path, reason=reason)
    return id


def missing(
    what: str,
    id: str,
    *,
    path: str = "",
    reason: "Reason.ValueType" = reasons.ERROR_REASON_NOT_FOUND,
) -> Failure:
    """`what` with this id does not exist; `path` where the request named it."""
    return Failure(reason, f"{what} {id} was not found", path=path)


def agent_identity(workspace_id: str, agent_id: str, version: int) -> Identity:
    """What the definition of an agent version is sealed for."""
    return ("registry.agent_versions", "definition_sealed", workspace_id, agent_id, version)


def environment_identity(workspace_id: str, environment_id: str) -> Identity:
    """What the definition of an environment is sealed for."""
    return ("registry.environments", "definition_sealed", workspace_id, environment_id)


def open_definition(ring: SealRing, workspace_id: str, id: str, row: Record) -> agent_pb2.Agent:
    """An agent version as it was saved, without times."""
    sealed: bytes = row["definition_sealed"]
    identity = agent_identity(workspace_id, id, row["version"])
    return agent_pb2.Agent.FromString(ring.open(sealed, *identity))


def open_agent(ring: SealRing, workspace_id: str, id: str, row: Record) -> agent_pb2.Agent:
    """An agent version as answers show it."""
    agent = open_definition(ring, workspace_id, id, row)
    agent.created_at.FromDatetime(row["created_at"])
    archived_at = row["archived_at"]
    if archived_at is not None:
        agent.archived_at.FromDatetime(archived_at)
    agent.updated_at.FromDatetime(max(row["versioned_at"], archived_at or row["versioned_at"]))
    return agent


def open_configuration(
    ring: SealRing, workspace_id: str, id: str, sealed: bytes
) -> environment_pb2.Environment:
    """An environment as it was saved, without times and state."""
    opened = ring.open(sealed, *environment_identity(workspace_id, id))
    return environment_pb2.Environment.FromString(opened)


def open_environment(
    ring: SealRing, workspace_id: str, id: str, row: Record, prefix: str = ""
) -> environment_pb2.Environment:
    """An environment as answers show it; the row's columns begin with `prefix`."""
    sealed = row[f"{prefix or 'definition_'}sealed"]
    environment = open_configuration(ring, workspace_id, id, sealed)
    environment.created_at.FromDatetime(row[f"{prefix}created_at"])
    environment.updated_at.FromDatetime(row[f"{prefix}updated_at"])
    environment.scope = environment_pb2.ENVIRONMENT_SCOPE_ORGANIZATION
    environment.state = environment_pb2.ENVIRONMENT_STATE_ACTIVE
    if row[f"{prefix}archived_at"] is not None:
        environment.archived_at.FromDatetime(row[f"{prefix}archived_at"])
        environment.state = environment_pb2.ENVIRONMENT_STATE_ARCHIVED
    return environment
