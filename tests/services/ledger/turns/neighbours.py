"""The services that a ledger asks when a session is created, with one agent and one environment."""

from counterfoil.registry.v1 import agent_pb2, environment_pb2, registry_pb2
from counterfoil.tools.v1 import tools_pb2
from counterfoil.types.v1 import runtime_pb2

from foundation import ids
from foundation.errors import not_found

AGENT = ids.derived("agent", "clerk")
ENVIRONMENT = ids.derived("environment", "office")


class Registry:
    """Knows one agent and one environment."""

    async def ResolveDefinitions(
        self, request: registry_pb2.ResolveDefinitionsRequest
    ) -> registry_pb2.ResolveDefinitionsResponse:
        if request.agent_id != AGENT:
            raise not_found("agent", request.agent_id)
        agent = agent_pb2.Agent(
            id=AGENT, name="clerk", version=2, model=agent_pb2.ModelConfig(id="model-1")
        )
        return registry_pb2.ResolveDefinitionsResponse(
            agent=agent, environment=environment_pb2.Environment(id=ENVIRONMENT)
        )

    async def OverrideAgent(
        self, request: registry_pb2.OverrideAgentRequest
    ) -> registry_pb2.OverrideAgentResponse:
        agent = agent_pb2.SessionAgent()
        agent.CopyFrom(request.agent)
        agent.ClearField("tools")
        agent.tools.extend(request.overrides.tools)
        return registry_pb2.OverrideAgentResponse(agent=agent)


class Tools:
    """Resolves every agent to one model without tools."""

    async def ResolveRuntime(
        self, request: tools_pb2.ResolveRuntimeRequest
    ) -> tools_pb2.ResolveRuntimeResponse:
        return tools_pb2.ResolveRuntimeResponse(
            runtime=runtime_pb2.SessionRuntime(model=request.agent.model.id, system="be kind")
        )
