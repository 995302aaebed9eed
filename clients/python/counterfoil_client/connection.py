"""The connection to a Counterfoil."""

import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from grpclib.client import Channel

from counterfoil_client.failures import translated
from counterfoil_client.gen.counterfoil.context.v1 import ContextSnapshotServiceStub
from counterfoil_client.gen.counterfoil.ledger.v1 import (
    AgentReference,
    AgentVersionReference,
    CreateSessionRequest,
    SessionServiceStub,
)
from counterfoil_client.gen.counterfoil.registry.v1 import (
    Agent,
    AgentServiceStub,
    CreateAgentRequest,
    CreateEnvironmentRequest,
    Environment,
    EnvironmentServiceStub,
    ModelConfig,
    Tool,
)
from counterfoil_client.gen.counterfoil.registry.v1 import CustomTool as _CustomTool
from counterfoil_client.session import Session


@dataclass(frozen=True)
class CustomTool:
    """A tool that the application itself answers. `parameters` are properties of its input in JSON
    Schema: `{"city": {"type": "string"}}`."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    required: Sequence[str] = ()

    def as_tool(self) -> Tool:
        """The tool as the contract has it."""
        schema = {"type": "object", "properties": self.parameters, "required": list(self.required)}
        made = _CustomTool(
            name=self.name, description=self.description, input_schema=json.dumps(schema).encode()
        )
        return Tool(custom=made)


class Counterfoil:
    """A connection: `async with Counterfoil("127.0.0.1", 8081, key="…") as counterfoil`.

    `agents`, `environments`, `sessions` and `context_snapshots` are the generated stubs, with every
    call of the contracts; the methods here are the short way to what most applications need.
    """

    def __init__(
        self, host: str, port: int, *, key: str, tls: ssl.SSLContext | bool | None = None
    ) -> None:
        self._channel = Channel(host, port, ssl=tls or None)
        metadata = {"authorization": f"Bearer {key}"}
        self._metadata = metadata
        self.agents = AgentServiceStub(self._channel, metadata=metadata)
        self.environments = EnvironmentServiceStub(self._channel, metadata=metadata)
        self.sessions = SessionServiceStub(self._channel, metadata=metadata)
        self.context_snapshots = ContextSnapshotServiceStub(self._channel, metadata=metadata)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    async def create_agent(
        self, name: str, *, model: str, system: str | None = None, tools: Sequence[CustomTool] = ()
    ) -> Agent:
        """A new agent."""
        request = CreateAgentRequest(
            name=name,
            model=ModelConfig(id=model),
            system=system,
            tools=[tool.as_tool() for tool in tools],
        )
        async with translated():
            made = (await self.agents.create_agent(request)).agent
        assert made is not None
        return made

    async def create_environment(self, name: str) -> Environment:
        """A new environment; its name must be free in the workspace."""
        async with translated():
            response = await self.environments.create_environment(
                CreateEnvironmentRequest(name=name)
            )
        assert response.environment is not None
        return response.environment

    async def create_session(
        self, agent_id: str, environment_id: str, *, version: int | None = None
    ) -> Session:
        """A new session of an agent's newest or given version."""
        reference = AgentVersionReference(id=agent_id, version=version)
        request = CreateSessionRequest(
            agent=AgentReference(agent=reference), environment_id=environment_id
        )
        async with translated():
            made = (await self.sessions.create_session(request)).session
        assert made is not None
        return self.session(made.id)

    def session(self, id: str) -> Session:
        """A session that exists."""
        return Session(self.sessions, id, self._metadata)
