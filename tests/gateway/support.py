"""Servicers that remember what they were asked, and answer or fail as a test says."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
from counterfoil.ledger.v1 import session_pb2, session_pb2_grpc
from counterfoil.registry.v1 import (
    agent_pb2,
    agent_pb2_grpc,
    environment_pb2,
    environment_pb2_grpc,
    registry_pb2,
)

from foundation.errors import Failure
from foundation.rpc import context
from foundation.rpc.admission import Admission
from foundation.rpc.host import Host
from gateway.app import Gateway, create_app

API_KEY = "workspace-key"
SERVICE_KEY = "service-key"
SESSION = "sesn_0000000000000000000000000a"


@dataclass
class Behaviour:
    """What the servicers do, and what reached them."""

    failure: BaseException | None = None
    data: list[bytes] = field(default_factory=list[bytes])
    calls: list[Any] = field(default_factory=list[Any])
    contexts: list[context.CallContext] = field(default_factory=list[context.CallContext])
    stream: "asyncio.Queue[session_pb2.StreamEventsResponse | BaseException]" = field(
        default_factory=lambda: asyncio.Queue[session_pb2.StreamEventsResponse | BaseException]()
    )
    subscribed: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event | None = None

    async def take(self, request: Any) -> None:
        self.calls.append(request)
        self.contexts.append(context.current())
        if self.release is not None:
            self.subscribed.set()
            await self.release.wait()
        if self.failure is not None:
            raise self.failure

    def send(self, *frames: session_pb2.StreamFrame, end: bool = False) -> None:
        self.stream.put_nowait(session_pb2.StreamEventsResponse(frames=frames, end=end))


def frame(position: int, type_: str, json_text: str | None = None) -> session_pb2.StreamFrame:
    text = json_text or json.dumps({"id": f"sevt_{position}", "type": type_})
    return session_pb2.StreamFrame(position=position, type=type_, json=text.encode())


class Agents(agent_pb2_grpc.AgentServiceServicer):
    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour

    async def CreateAgent(
        self, request: agent_pb2.CreateAgentRequest, context: Any
    ) -> agent_pb2.CreateAgentResponse:
        await self.behaviour.take(request)
        agent = agent_pb2.Agent(id="agent_1", name=request.name, model=request.model)
        return agent_pb2.CreateAgentResponse(agent=agent)

    async def ArchiveAgent(
        self, request: agent_pb2.ArchiveAgentRequest, context: Any
    ) -> agent_pb2.ArchiveAgentResponse:
        await self.behaviour.take(request)
        return agent_pb2.ArchiveAgentResponse(agent=agent_pb2.Agent(id=request.agent_id))


class Environments(environment_pb2_grpc.EnvironmentServiceServicer):
    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour

    async def DeleteEnvironment(
        self, request: environment_pb2.DeleteEnvironmentRequest, context: Any
    ) -> environment_pb2.DeleteEnvironmentResponse:
        await self.behaviour.take(request)
        return environment_pb2.DeleteEnvironmentResponse(id=request.environment_id)


class Sessions(session_pb2_grpc.SessionServiceServicer):
    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour

    async def GetSession(
        self, request: session_pb2.GetSessionRequest, context: Any
    ) -> session_pb2.GetSessionResponse:
        await self.behaviour.take(request)
        session = session_pb2.Session(id=request.session_id, status=1)
        return session_pb2.GetSessionResponse(session=session)

    async def DeleteSession(
        self, request: session_pb2.DeleteSessionRequest, context: Any
    ) -> session_pb2.DeleteSessionResponse:
        await self.behaviour.take(request)
        return session_pb2.DeleteSessionResponse(id=request.session_id)

    async def SubmitEvents(
        self, request: session_pb2.SubmitEventsRequest, context: Any
    ) -> session_pb2.SubmitEventsResponse:
        await self.behaviour.take(request)
        return session_pb2.SubmitEventsResponse(data=self.behaviour.data)

    async def ListEvents(
        self, request: session_pb2.ListEventsRequest, context: Any
    ) -> session_pb2.ListEventsResponse:
        await self.behaviour.take(request)
        return session_pb2.ListEventsResponse(data=self.behaviour.data)

    async def StreamEvents(
        self, request: session_pb2.StreamEventsRequest, context: Any
    ) -> AsyncIterator[session_pb2.StreamEventsResponse]:
        await self.behaviour.take(request)
        try:
            yield session_pb2.StreamEventsResponse()
            self.behaviour.subscribed.set()
            while True:
                item = await self.behaviour.stream.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
                if item.end:
                    return
        finally:
            self.behaviour.cancelled.set()


async def _authenticate(api_key: str) -> registry_pb2.AuthenticateResponse | None:
    if api_key != API_KEY:
        return None
    return registry_pb2.AuthenticateResponse(workspace_id="wrkspc_1", api_key_id="apikey_1")


def host_of(behaviour: Behaviour) -> Host:
    host = Host(Admission(SERVICE_KEY, _authenticate))
    host.register(agent_pb2_grpc.add_AgentServiceServicer_to_server, Agents(behaviour))
    host.register(
        environment_pb2_grpc.add_EnvironmentServiceServicer_to_server, Environments(behaviour)
    )
    host.register(session_pb2_grpc.add_SessionServiceServicer_to_server, Sessions(behaviour))
    return host


async def all_fine() -> dict[str, str | None]:
    return {"registry database": None, "ledger database": None}


def app_of(host: Host, *, ping_seconds: float = 10.0) -> Gateway:
    return create_app(lambda _: host.channel(), readiness=all_fine, ping_seconds=ping_seconds)


def client_of(app: Any, **headers: str) -> httpx2.AsyncClient:
    """A client that calls the application without a socket."""
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app),
        base_url="http://gateway",
        headers={"authorization": f"Bearer {API_KEY}"} | headers,
    )


def failing(reason: int, text: str = "why", **more: Any) -> Failure:
    return Failure(reason, text, **more)  # pyright: ignore[reportArgumentType]
