"""`clients/python`: betterproto2 messages over grpclib."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from counterfoil_client import (
    ClientEvent,
    Counterfoil,
    CustomTool,
    Event,
    RefusedError,
    Session,
    interrupt,
    message,
    tool_result,
)
from counterfoil_client.failures import translated
from counterfoil_client.gen.counterfoil.ledger.v1 import (
    ArchiveSessionRequest,
    DeleteSessionRequest,
    GetSessionRequest,
    ListEventsRequest,
    ListOrder,
    ListPendingActionsRequest,
    ListSessionsRequest,
    ListThreadsRequest,
    SessionStatus,
    UpdateSessionRequest,
)
from counterfoil_client.gen.counterfoil.registry.v1 import (
    ArchiveAgentRequest,
    DeleteEnvironmentRequest,
    GetAgentRequest,
    ListAgentVersionsRequest,
    UpdateAgentRequest,
)
from counterfoil_client.gen.google.protobuf import FieldMask

MODEL = "claude-sonnet-4-5"


def event(given: Mapping[str, Any]) -> ClientEvent:
    """A client event from its short form."""
    if "message" in given:
        return message(given["message"])
    if "result" in given:
        use = Event(0, {"id": given["result"]})
        return tool_result(use, given["text"])
    return interrupt()


def agent(found: Any) -> dict[str, Any]:
    """What scenarios look at."""
    archived = found.archived_at is not None
    return {"id": found.id, "name": found.name, "version": found.version, "archived": archived}


def session(found: Any) -> dict[str, Any]:
    """What scenarios look at."""
    return {
        "id": found.id,
        "title": found.title,
        "status": SessionStatus(found.status).name.lower(),
        "agent_version": found.agent.version,
        "archived": found.archived_at is not None,
    }


async def all_of(call: Any, request: Any) -> list[Any]:
    """Every item of every page."""
    found: list[Any] = []
    while True:
        response = await call(request)
        found += response.data
        if not response.next_page:
            return found
        request.page = response.next_page


class Driver:
    """One method for each operation."""

    def __init__(self) -> None:
        self._client: Any = None
        self._events: AsyncGenerator[Event] | None = None

    async def connect(self, grpc_address: str, key: str, **_: Any) -> str:
        """A new connection."""
        if self._client is not None:
            self._client.close()
        host, port = grpc_address.rsplit(":", 1)
        self._client = Counterfoil(host, int(port), key=key)
        return "counterfoil-client"

    async def agent_create(self, name: str, tools: list[str]) -> Any:
        made = [CustomTool(t, f"The {t}.", {"text": {"type": "string"}}) for t in tools]
        return agent(await self._client.create_agent(name, model=MODEL, tools=made))

    async def agent_get(self, id: str, version: int | None = None) -> Any:
        request = GetAgentRequest(agent_id=id, version=version)
        return agent((await self._client.agents.get_agent(request)).agent)

    async def agent_update(self, id: str, version: int, name: str) -> Any:
        mask = FieldMask(paths=["name"])
        request = UpdateAgentRequest(agent_id=id, version=version, name=name, update_mask=mask)
        return agent((await self._client.agents.update_agent(request)).agent)

    async def agent_versions(self, id: str, limit: int) -> Any:
        request = ListAgentVersionsRequest(agent_id=id, limit=limit)
        found = await all_of(self._client.agents.list_agent_versions, request)
        return [agent(one) for one in found]

    async def agent_archive(self, id: str) -> Any:
        request = ArchiveAgentRequest(agent_id=id)
        return agent((await self._client.agents.archive_agent(request)).agent)

    async def environment_create(self, name: str) -> Any:
        made = await self._client.create_environment(name)
        return {"id": made.id, "name": made.name}

    async def environment_delete(self, id: str) -> Any:
        request = DeleteEnvironmentRequest(environment_id=id)
        return (await self._client.environments.delete_environment(request)).id

    async def session_create(
        self, agent_id: str, environment_id: str, agent_version: int | None = None
    ) -> Any:
        made: Session = await self._client.create_session(
            agent_id, environment_id, version=agent_version
        )
        return await self.session_get(made.id)

    async def session_get(self, id: str) -> Any:
        request = GetSessionRequest(session_id=id)
        return session((await self._client.sessions.get_session(request)).session)

    async def session_update(self, id: str, title: str) -> Any:
        mask = FieldMask(paths=["title"])
        request = UpdateSessionRequest(session_id=id, title=title, update_mask=mask)
        return session((await self._client.sessions.update_session(request)).session)

    async def session_list(self, agent_id: str, limit: int) -> Any:
        request = ListSessionsRequest(agent_id=agent_id, limit=limit)
        found = await all_of(self._client.sessions.list_sessions, request)
        return [session(one) for one in found]

    async def session_archive(self, id: str) -> Any:
        request = ArchiveSessionRequest(session_id=id)
        return session((await self._client.sessions.archive_session(request)).session)

    async def session_delete(self, id: str) -> Any:
        request = DeleteSessionRequest(session_id=id)
        return (await self._client.sessions.delete_session(request)).id

    async def send(self, session_id: str, events: list[dict[str, Any]]) -> Any:
        sent = await self._client.session(session_id).send(*map(event, events))
        return [one.data for one in sent]

    async def stream_open(self, session_id: str) -> None:
        opened: Session = self._client.session(session_id)
        await opened.subscribe()
        self._events = opened.events()

    async def stream_next(self) -> Any:
        assert self._events is not None
        found = await anext(self._events, None)
        return None if found is None else found.data

    async def stream_close(self) -> None:
        assert self._events is not None
        await self._events.aclose()

    async def events_list(
        self,
        session_id: str,
        limit: int,
        types: list[str] | None = None,
        order: str | None = None,
    ) -> Any:
        if types is None and order is None:
            return [one.data for one in await self._client.session(session_id).history(limit)]
        chosen = ListOrder.DESC if order == "desc" else ListOrder.ASC
        return await self._listed(
            ListEventsRequest(session_id=session_id, limit=limit, types=types or [], order=chosen)
        )

    async def pending_actions(self, session_id: str) -> Any:
        request = ListPendingActionsRequest(session_id=session_id)
        found = (await self._client.sessions.list_pending_actions(request)).data
        return [
            {"event_id": one.event_id, "name": one.name, "answer_type": one.answer_type}
            for one in found
        ]

    async def thread_list(self, session_id: str) -> Any:
        request = ListThreadsRequest(session_id=session_id)
        found = await all_of(self._client.sessions.list_threads, request)
        return [
            {
                "id": one.id,
                "status": SessionStatus(one.status).name.lower(),
                "parent": one.parent_thread_id,
            }
            for one in found
        ]

    async def thread_events(self, session_id: str, thread_id: str, limit: int) -> Any:
        return await self._listed(
            ListEventsRequest(session_id=session_id, thread_id=thread_id, limit=limit)
        )

    async def _listed(self, request: ListEventsRequest) -> Any:
        found = await all_of(self._client.sessions.list_events, request)
        return [json.loads(raw) for raw in found]


async def answer(driver: Driver, line: str) -> dict[str, Any]:
    """The answer to one line."""
    asked = json.loads(line)
    try:
        async with translated():
            return {"value": await getattr(driver, asked["op"])(**asked["args"])}
    except RefusedError as error:
        return {"error": {"code": error.code.name, "message": error.text}}


async def main() -> None:
    """Answer every line."""
    driver = Driver()
    while line := await asyncio.to_thread(sys.stdin.readline):
        sys.stdout.write(json.dumps(await answer(driver, line)) + "\n")
        sys.stdout.flush()


asyncio.run(main())
