"""What a session pins: the agent as the registry completes it, the runtime as tools resolve it."""

from counterfoil.ledger.v1 import session_pb2
from counterfoil.registry.v1 import agent_pb2, environment_pb2, registry_pb2, registry_pb2_grpc
from counterfoil.tools.v1 import tools_pb2, tools_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import runtime_pb2
from google.protobuf.field_mask_pb2 import FieldMask

from foundation import masks
from foundation.errors import Failure, invalid
from services.ledger import admission, resource

Resolved = tuple[agent_pb2.SessionAgent, runtime_pb2.SessionRuntime]

_UPDATED = ("tools", "mcp_servers")
_OVERRIDDEN = ("model", "system", "tools", "mcp_servers", "skills")
_UNKNOWN = (reasons.ERROR_REASON_NOT_FOUND, reasons.ERROR_REASON_ENVIRONMENT_NOT_FOUND)


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
    ) -> Resolved:
        """What a new session pins; what is unknown is the request's fault."""
        asked = _asked(workspace_id, request)
        try:
            found = await self._registry.ResolveDefinitions(asked)
        except Failure as failure:
            if failure.reason not in _UNKNOWN:
                raise
            raise invalid(failure.path or "agent", failure.message) from failure
        runtime = await self._runtime(workspace_id, found.agent, found.environment)
        return resource.agent(found.agent), runtime

    async def of_updated(
        self,
        workspace_id: str,
        pinned: session_pb2.Session,
        environment_id: str,
        update: session_pb2.SessionAgentUpdate,
    ) -> Resolved | None:
        """What a session pins after an update of its agent; None when that changes nothing."""
        names = sorted(masks.named(update, _UPDATED, path="agent.update_mask"))
        if not names:
            return None
        overrides = agent_pb2.AgentOverrides(
            update_mask=FieldMask(paths=names), tools=update.tools, mcp_servers=update.mcp_servers
        )
        request = registry_pb2.OverrideAgentRequest(agent=pinned.agent, overrides=overrides)
        agent = (await self._registry.OverrideAgent(request)).agent
        if agent == pinned.agent:
            return None
        environment = environment_pb2.Environment(id=environment_id)
        return agent, await self._runtime(workspace_id, _whole(agent), environment)

    async def _runtime(
        self, workspace_id: str, agent: agent_pb2.Agent, environment: environment_pb2.Environment
    ) -> runtime_pb2.SessionRuntime:
        resolved = await self._tools.ResolveRuntime(
            tools_pb2.ResolveRuntimeRequest(
                workspace_id=workspace_id, agent=agent, environment=environment
            )
        )
        if resolved.runtime.ByteSize() > admission.RUNTIME_BYTES_MAX:
            limit = admission.RUNTIME_BYTES_MAX
            raise Failure(
                reasons.ERROR_REASON_TOO_LARGE,
                f"the agent's system prompt and tools may hold {limit} bytes together",
                path="agent",
            )
        return resolved.runtime


def _asked(
    workspace_id: str, request: session_pb2.CreateSessionRequest
) -> registry_pb2.ResolveDefinitionsRequest:
    asked = registry_pb2.ResolveDefinitionsRequest(
        workspace_id=workspace_id, environment_id=request.environment_id
    )
    if request.agent.WhichOneof("reference") != "agent_with_overrides":
        asked.agent_id, asked.agent_version = request.agent.agent.id, request.agent.agent.version
        return asked
    given = request.agent.agent_with_overrides
    asked.agent_id, asked.agent_version = given.id, given.version
    names = masks.named(given, _OVERRIDDEN, ("id", "version"), path="agent.update_mask")
    if "model" in names and not given.HasField("model"):
        raise Failure(
            reasons.ERROR_REASON_AGENT_MODEL_REQUIRED,
            "cannot be cleared; name a model, or leave it out for the agent's",
            path="agent.model",
        )
    asked.overrides.SetInParent()
    asked.overrides.update_mask.paths.extend(sorted(names))
    asked.overrides.tools.extend(given.tools)
    asked.overrides.mcp_servers.extend(given.mcp_servers)
    asked.overrides.skills.extend(given.skills)
    if given.HasField("model"):
        asked.overrides.model.CopyFrom(given.model)
    if given.HasField("system"):
        asked.overrides.system = given.system
    return asked


def _whole(agent: agent_pb2.SessionAgent) -> agent_pb2.Agent:
    """The agent that a session's copy stands for."""
    whole = agent_pb2.Agent(
        id=agent.id,
        version=agent.version,
        name=agent.name,
        model=agent.model,
        tools=agent.tools,
        mcp_servers=agent.mcp_servers,
        skills=agent.skills,
    )
    if agent.HasField("system"):
        whole.system = agent.system
    return whole
