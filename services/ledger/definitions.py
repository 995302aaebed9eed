"""What a session pins: the agent as the registry completes it, the runtime as tools resolve it."""

from counterfoil.ledger.v1 import session_pb2
from counterfoil.registry.v1 import agent_pb2, registry_pb2, registry_pb2_grpc
from counterfoil.tools.v1 import tools_pb2, tools_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import runtime_pb2

from foundation.errors import Failure, invalid
from services.ledger import admission, resource


class Definitions:
    """Asks the registry, then the tools service."""

    def __init__(
        self,
        registry: registry_pb2_grpc.RegistryServiceStub,
        tools: tools_pb2_grpc.ToolServiceStub,
    ) -> None:
        self._registry = registry
        self._tools = tools

    async def of_new(
        self, workspace_id: str, request: session_pb2.CreateSessionRequest
    ) -> tuple[agent_pb2.SessionAgent, runtime_pb2.SessionRuntime]:
        """What a new session pins; what is unknown is the request's fault."""
        reference = request.agent.agent
        return await self._resolve(
            registry_pb2.ResolveDefinitionsRequest(
                workspace_id=workspace_id,
                agent_id=reference.id,
                agent_version=reference.version,
                environment_id=request.environment_id,
            )
        )

    async def _resolve(
        self, request: registry_pb2.ResolveDefinitionsRequest
    ) -> tuple[agent_pb2.SessionAgent, runtime_pb2.SessionRuntime]:
        try:
            found = await self._registry.ResolveDefinitions(request)
        except Failure as failure:
            if failure.reason != reasons.ERROR_REASON_NOT_FOUND:
                raise
            raise invalid(failure.path or "agent", failure.message) from failure
        resolved = await self._tools.ResolveRuntime(
            tools_pb2.ResolveRuntimeRequest(
                workspace_id=request.workspace_id, agent=found.agent, environment=found.environment
            )
        )
        if resolved.runtime.ByteSize() > admission.RUNTIME_BYTES_MAX:
            limit = admission.RUNTIME_BYTES_MAX
            raise Failure(
                reasons.ERROR_REASON_TOO_LARGE,
                f"the agent's system prompt and tools may hold {limit} bytes together",
                path="agent",
            )
        return resource.agent(found.agent), resolved.runtime
