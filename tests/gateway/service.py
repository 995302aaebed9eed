"""Servicers that remember what they were asked, and answer or fail as a test says."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from counterfoil.ledger.v1 import session_pb2, session_pb2_grpc
from counterfoil.registry.v1 import agent_pb2, agent_pb2_grpc, environment_pb2, environment_pb2_grpc

from foundation.rpc import context


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
        session = session_pb2.Session(id=request.session_id, status=session_pb2.SESSION_STATUS_IDLE)
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
