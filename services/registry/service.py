"""gRPC in and out of the registry."""

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

from foundation.errors import Failure
from foundation.rpc.context import workspace
from foundation.storage import Database, Record, SealRing
from services.registry import agents, store
from services.registry.adoption import adopt
from services.registry.agent_catalog import AgentCatalog
from services.registry.bootstrap import ensure_workspace
from services.registry.environment_catalog import EnvironmentCatalog
from services.registry.keys import PREFIX_BYTES, hash_of, load_pepper, matching
from services.registry.resources import known, missing, open_agent, open_environment

if TYPE_CHECKING:
    from foundation.bootstrap import Kernel

_WORKSPACE_NAME = "default"


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
        self._catalog = AgentCatalog(db, ring)

    async def CreateAgent(
        self, request: agent_pb2.CreateAgentRequest, context: Any
    ) -> agent_pb2.CreateAgentResponse:
        agent = await self._catalog.create(workspace(), request)
        return agent_pb2.CreateAgentResponse(agent=agent)

    async def GetAgent(
        self, request: agent_pb2.GetAgentRequest, context: Any
    ) -> agent_pb2.GetAgentResponse:
        agent = await self._catalog.get(workspace(), request)
        return agent_pb2.GetAgentResponse(agent=agent)

    async def ListAgents(
        self, request: agent_pb2.ListAgentsRequest, context: Any
    ) -> agent_pb2.ListAgentsResponse:
        return await self._catalog.list(workspace(), request)

    async def UpdateAgent(
        self, request: agent_pb2.UpdateAgentRequest, context: Any
    ) -> agent_pb2.UpdateAgentResponse:
        agent = await self._catalog.update(workspace(), request)
        return agent_pb2.UpdateAgentResponse(agent=agent)

    async def ListAgentVersions(
        self, request: agent_pb2.ListAgentVersionsRequest, context: Any
    ) -> agent_pb2.ListAgentVersionsResponse:
        return await self._catalog.versions(workspace(), request)

    async def ArchiveAgent(
        self, request: agent_pb2.ArchiveAgentRequest, context: Any
    ) -> agent_pb2.ArchiveAgentResponse:
        agent = await self._catalog.archive(workspace(), request)
        return agent_pb2.ArchiveAgentResponse(agent=agent)


class EnvironmentServicer(environment_pb2_grpc.EnvironmentServiceServicer):
    """Public: environments."""

    def __init__(self, db: Database, ring: SealRing) -> None:
        self._catalog = EnvironmentCatalog(db, ring)

    async def CreateEnvironment(
        self, request: environment_pb2.CreateEnvironmentRequest, context: Any
    ) -> environment_pb2.CreateEnvironmentResponse:
        environment = await self._catalog.create(workspace(), request)
        return environment_pb2.CreateEnvironmentResponse(environment=environment)

    async def GetEnvironment(
        self, request: environment_pb2.GetEnvironmentRequest, context: Any
    ) -> environment_pb2.GetEnvironmentResponse:
        environment = await self._catalog.get(workspace(), request)
        return environment_pb2.GetEnvironmentResponse(environment=environment)

    async def ListEnvironments(
        self, request: environment_pb2.ListEnvironmentsRequest, context: Any
    ) -> environment_pb2.ListEnvironmentsResponse:
        return await self._catalog.list(workspace(), request)

    async def UpdateEnvironment(
        self, request: environment_pb2.UpdateEnvironmentRequest, context: Any
    ) -> environment_pb2.UpdateEnvironmentResponse:
        environment = await self._catalog.update(workspace(), request)
        return environment_pb2.UpdateEnvironmentResponse(environment=environment)

    async def ArchiveEnvironment(
        self, request: environment_pb2.ArchiveEnvironmentRequest, context: Any
    ) -> environment_pb2.ArchiveEnvironmentResponse:
        environment = await self._catalog.archive(workspace(), request)
        return environment_pb2.ArchiveEnvironmentResponse(environment=environment)

    async def DeleteEnvironment(
        self, request: environment_pb2.DeleteEnvironmentRequest, context: Any
    ) -> environment_pb2.DeleteEnvironmentResponse:
        id = await self._catalog.delete(workspace(), request)
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
        agent_id = known(request.agent_id, "agent", path="agent")
        environment_id = known(request.environment_id, "environment", path="environment_id")
        row = await store.resolve(self._db, where, agent_id, request.agent_version, environment_id)
        _refuse_missing(request, row)
        agent = open_agent(self._ring, where, agent_id, row)
        if request.HasField("overrides"):
            agent = agents.overridden(agent, request.overrides)
        return registry_pb2.ResolveDefinitionsResponse(
            agent=agent,
            environment=open_environment(self._ring, where, environment_id, row, "environment_"),
        )

    async def OverrideAgent(
        self, request: registry_pb2.OverrideAgentRequest, context: Any
    ) -> registry_pb2.OverrideAgentResponse:
        agent = agents.session_agent_overridden(request.agent, request.overrides)
        return registry_pb2.OverrideAgentResponse(agent=agent)

    async def AdoptWorkspace(
        self, request: registry_pb2.AdoptWorkspaceRequest, context: Any
    ) -> registry_pb2.AdoptWorkspaceResponse:
        await adopt(self._db, request.workspace_id)
        return registry_pb2.AdoptWorkspaceResponse()


def _refuse_missing(request: registry_pb2.ResolveDefinitionsRequest, row: Record) -> None:
    agent, environment = request.agent_id, request.environment_id
    if not row["agent_found"]:
        raise missing("agent", agent, path="agent")
    if row["version"] is None:
        raise Failure(
            reasons.ERROR_REASON_NOT_FOUND,
            f"agent {agent} has no version {request.agent_version}",
            path="agent",
        )
    if not row["environment_found"]:
        raise missing("environment", environment, path="environment_id")
    if row["archived_at"] is not None:
        raise Failure(reasons.ERROR_REASON_WRONG_STATE, f"agent {agent} is archived", path="agent")
    if row["environment_archived_at"] is not None:
        raise Failure(
            reasons.ERROR_REASON_WRONG_STATE,
            f"environment {environment} is archived",
            path="environment_id",
        )
