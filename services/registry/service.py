"""gRPC in and out of the registry."""

import re
from typing import TYPE_CHECKING, Any

from counterfoil.registry.v1 import (
    agent_pb2,
    agent_pb2_grpc,
    environment_pb2,
    environment_pb2_grpc,
    registry_pb2,
    registry_pb2_grpc,
)
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import ids
from foundation.errors import Failure, not_found
from foundation.rpc.context import workspace
from foundation.storage import Database, Record, SealRing
from services.registry import store
from services.registry.agents import new_agent
from services.registry.bootstrap import ensure_workspace
from services.registry.environments import new_environment
from services.registry.keys import PREFIX_BYTES, hash_of, load_pepper, matching

if TYPE_CHECKING:
    from foundation.bootstrap import Kernel

_WORKSPACE_NAME = "default"
_ID = re.compile(r"[a-z]{1,16}_[0-9a-z]{26}")


async def start(kernel: "Kernel") -> None:
    """Open the database, make sure that the bootstrap key works, and serve."""
    db = await kernel.database("registry")
    key = kernel.settings.api_key.get_secret_value()
    await ensure_workspace(db, kernel.ring, _WORKSPACE_NAME, key)
    kernel.register(
        agent_pb2_grpc.add_AgentServiceServicer_to_server, AgentServicer(db, kernel.ring)
    )
    kernel.register(
        environment_pb2_grpc.add_EnvironmentServiceServicer_to_server,
        EnvironmentServicer(db, kernel.ring),
    )
    kernel.register(
        registry_pb2_grpc.add_RegistryServiceServicer_to_server,
        RegistryServicer(db, kernel.ring, await load_pepper(db, kernel.ring)),
    )


class AgentServicer(agent_pb2_grpc.AgentServiceServicer):
    """Public: agents."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring

    async def CreateAgent(
        self, request: agent_pb2.CreateAgentRequest, context: Any
    ) -> agent_pb2.CreateAgentResponse:
        agent = new_agent(request, ids.new("agent"))
        sealed = self._ring.seal(
            agent.SerializeToString(deterministic=True), *_agent(workspace(), agent.id, 1)
        )
        row = await store.create_agent(self._db, workspace(), agent.id, sealed)
        agent.created_at.FromDatetime(row["created_at"])
        agent.updated_at.FromDatetime(row["created_at"])
        return agent_pb2.CreateAgentResponse(agent=agent)

    async def GetAgent(
        self, request: agent_pb2.GetAgentRequest, context: Any
    ) -> agent_pb2.GetAgentResponse:
        id = _known(request.agent_id, "agent")
        row = await store.get_agent(self._db, workspace(), id)
        if row is None:
            raise not_found("agent", id)
        return agent_pb2.GetAgentResponse(agent=_open_agent(self._ring, workspace(), id, row))

    async def ArchiveAgent(
        self, request: agent_pb2.ArchiveAgentRequest, context: Any
    ) -> agent_pb2.ArchiveAgentResponse:
        id = _known(request.agent_id, "agent")
        row = await store.archive_agent(self._db, workspace(), id)
        if row is None:
            raise not_found("agent", id)
        return agent_pb2.ArchiveAgentResponse(agent=_open_agent(self._ring, workspace(), id, row))


class EnvironmentServicer(environment_pb2_grpc.EnvironmentServiceServicer):
    """Public: environments."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._db = db
        self._ring = ring

    async def CreateEnvironment(
        self, request: environment_pb2.CreateEnvironmentRequest, context: Any
    ) -> environment_pb2.CreateEnvironmentResponse:
        environment = new_environment(request, ids.new("environment"))
        id, name = environment.id, environment.name
        sealed = self._ring.seal(
            environment.SerializeToString(deterministic=True), *_environment(workspace(), id)
        )
        row = await store.create_environment(self._db, workspace(), id, name.encode(), sealed)
        if row is None:
            raise Failure(
                reasons.ERROR_REASON_CONFLICT,
                f"an environment named {name[:80]!r} exists already",
                path="name",
            )
        opened = _open_environment(self._ring, workspace(), id, row)
        return environment_pb2.CreateEnvironmentResponse(environment=opened)

    async def GetEnvironment(
        self, request: environment_pb2.GetEnvironmentRequest, context: Any
    ) -> environment_pb2.GetEnvironmentResponse:
        id = _known(request.environment_id, "environment")
        row = await store.get_environment(self._db, workspace(), id)
        if row is None:
            raise not_found("environment", id)
        opened = _open_environment(self._ring, workspace(), id, row)
        return environment_pb2.GetEnvironmentResponse(environment=opened)

    async def DeleteEnvironment(
        self, request: environment_pb2.DeleteEnvironmentRequest, context: Any
    ) -> environment_pb2.DeleteEnvironmentResponse:
        id = _known(request.environment_id, "environment")
        if not await store.delete_environment(self._db, workspace(), id):
            raise not_found("environment", id)
        return environment_pb2.DeleteEnvironmentResponse(id=id)


class RegistryServicer(registry_pb2_grpc.RegistryServiceServicer):
    """Internal: credentials and definitions for the other services."""

    def __init__(self, db: Database, ring: SealRing, pepper: bytes) -> None:
        self._db = db
        self._ring = ring
        self._pepper = pepper

    async def Authenticate(
        self, request: registry_pb2.AuthenticateRequest, context: Any
    ) -> registry_pb2.AuthenticateResponse:
        hashed = hash_of(self._pepper, request.api_key)
        row = matching(await store.find_keys(self._db, hashed[:PREFIX_BYTES]), hashed)
        if row is None:
            raise Failure(reasons.ERROR_REASON_UNAUTHENTICATED, "the API key is missing or unknown")
        return registry_pb2.AuthenticateResponse(
            workspace_id=row["workspace_id"], api_key_id=row["id"]
        )

    async def ResolveDefinitions(
        self, request: registry_pb2.ResolveDefinitionsRequest, context: Any
    ) -> registry_pb2.ResolveDefinitionsResponse:
        where = request.workspace_id
        agent_id = _known(request.agent_id, "agent", path="agent")
        environment_id = _known(request.environment_id, "environment", path="environment_id")
        row = await store.resolve(self._db, where, agent_id, request.agent_version, environment_id)
        _refuse_missing(request, row)
        environment = _open_environment(
            self._ring,
            where,
            environment_id,
            {
                "definition_sealed": row["environment_sealed"],
                "created_at": row["environment_created_at"],
                "updated_at": row["environment_updated_at"],
                "archived_at": row["environment_archived_at"],
            },
        )
        return registry_pb2.ResolveDefinitionsResponse(
            agent=_open_agent(self._ring, where, agent_id, row), environment=environment
        )


def _refuse_missing(request: registry_pb2.ResolveDefinitionsRequest, row: Record) -> None:
    agent, environment = request.agent_id, request.environment_id
    if not row["agent_found"]:
        raise _not_found("agent", agent, "agent")
    if row["version"] is None:
        raise Failure(
            reasons.ERROR_REASON_NOT_FOUND,
            f"agent {agent} has no version {request.agent_version}",
            path="agent",
        )
    if not row["environment_found"]:
        raise _not_found("environment", environment, "environment_id")
    if row["archived_at"] is not None:
        raise Failure(reasons.ERROR_REASON_WRONG_STATE, f"agent {agent} is archived", path="agent")
    if row["environment_archived_at"] is not None:
        raise Failure(
            reasons.ERROR_REASON_WRONG_STATE,
            f"environment {environment} is archived",
            path="environment_id",
        )


def _known(id: str, what: str, *, path: str = "") -> str:
    """The id, unless it cannot be one of ours: such text never reaches the database."""
    if _ID.fullmatch(id) is None:
        raise _not_found(what, id[:80], path)
    return id


def _not_found(what: str, id: str, path: str) -> Failure:
    return Failure(reasons.ERROR_REASON_NOT_FOUND, f"{what} {id} was not found", path=path)


def _agent(workspace_id: str, agent_id: str, version: int) -> tuple[str | int, ...]:
    return ("registry.agent_versions", "definition_sealed", workspace_id, agent_id, version)


def _environment(workspace_id: str, environment_id: str) -> tuple[str | int, ...]:
    return ("registry.environments", "definition_sealed", workspace_id, environment_id)


def _open_agent(ring: SealRing, workspace_id: str, id: str, row: Record) -> agent_pb2.Agent:
    identity = _agent(workspace_id, id, row["version"])
    agent = agent_pb2.Agent.FromString(ring.open(row["definition_sealed"], *identity))
    agent.created_at.FromDatetime(row["created_at"])
    archived_at = row["archived_at"]
    if archived_at is not None:
        agent.archived_at.FromDatetime(archived_at)
    agent.updated_at.FromDatetime(max(row["versioned_at"], archived_at or row["versioned_at"]))
    return agent


def _open_environment(
    ring: SealRing, workspace_id: str, id: str, row: Any
) -> environment_pb2.Environment:
    sealed = ring.open(row["definition_sealed"], *_environment(workspace_id, id))
    environment = environment_pb2.Environment.FromString(sealed)
    environment.created_at.FromDatetime(row["created_at"])
    environment.updated_at.FromDatetime(row["updated_at"])
    if row["archived_at"] is not None:
        environment.archived_at.FromDatetime(row["archived_at"])
    return environment
