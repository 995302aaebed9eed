"""The official Python SDK, `sync` or `async`, whichever version is installed."""

import asyncio
import inspect
import json
import sys
from typing import Any

import anthropic

MODEL = "claude-sonnet-4-5"


async def value_of(given: Any) -> Any:
    """The result of a call of either client."""
    return await given if inspect.isawaitable(given) else given


async def all_of(pages: Any) -> list[Any]:
    """Every item of every page, as the SDK's own paginator finds them."""
    if hasattr(pages, "__aiter__"):
        return [item async for item in pages]
    return list(await value_of(pages))


def tool(name: str) -> dict[str, Any]:
    """A custom tool's definition."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"type": "custom", "name": name, "description": f"The {name}.", "input_schema": schema}


def event(given: dict[str, Any]) -> dict[str, Any]:
    """A client event from its short form."""
    if "message" in given:
        content = [{"type": "text", "text": given["message"]}]
        return {"type": "user.message", "content": content}
    if "result" in given:
        content = [{"type": "text", "text": given["text"]}]
        use = given["result"]
        return {"type": "user.custom_tool_result", "custom_tool_use_id": use, "content": content}
    return {"type": "user.interrupt"}


def agent(found: Any) -> dict[str, Any]:
    """What scenarios look at."""
    archived = found.archived_at is not None
    return {"id": found.id, "name": found.name, "version": found.version, "archived": archived}


def session(found: Any) -> dict[str, Any]:
    """What scenarios look at."""
    return {
        "id": found.id,
        "title": found.title,
        "status": found.status,
        "agent_version": found.agent.version,
        "archived": found.archived_at is not None,
    }


class Driver:
    """One method for each operation."""

    def __init__(self, kind: str) -> None:
        self._class: Any = anthropic.AsyncAnthropic if kind == "async" else anthropic.Anthropic
        self._client: Any = None
        self._stream: Any = None

    @property
    def _beta(self) -> Any:
        return self._client.beta

    async def connect(self, rest_url: str, key: str, **_: Any) -> str:
        """A new client; the SDK's version."""
        if self._client is not None:
            await value_of(self._client.close())
        self._client = self._class(base_url=rest_url, api_key=key, max_retries=0, timeout=30)
        return anthropic.__version__

    async def agent_create(self, name: str, tools: list[str]) -> Any:
        made = self._beta.agents.create(name=name, model=MODEL, tools=[tool(t) for t in tools])
        return agent(await value_of(made))

    async def agent_get(self, id: str, version: int | None = None) -> Any:
        more = {} if version is None else {"version": version}
        return agent(await value_of(self._beta.agents.retrieve(id, **more)))

    async def agent_update(self, id: str, version: int, name: str) -> Any:
        return agent(await value_of(self._beta.agents.update(id, version=version, name=name)))

    async def agent_versions(self, id: str, limit: int) -> Any:
        return [
            agent(one) for one in await all_of(self._beta.agents.versions.list(id, limit=limit))
        ]

    async def agent_archive(self, id: str) -> Any:
        return agent(await value_of(self._beta.agents.archive(id)))

    async def environment_create(self, name: str) -> Any:
        made = await value_of(self._beta.environments.create(name=name))
        return {"id": made.id, "name": made.name}

    async def environment_delete(self, id: str) -> Any:
        return (await value_of(self._beta.environments.delete(id))).id

    async def session_create(
        self, agent_id: str, environment_id: str, agent_version: int | None = None
    ) -> Any:
        chosen: Any = agent_id
        if agent_version is not None:
            chosen = {"type": "agent", "id": agent_id, "version": agent_version}
        made = self._beta.sessions.create(agent=chosen, environment_id=environment_id)
        return session(await value_of(made))

    async def session_get(self, id: str) -> Any:
        return session(await value_of(self._beta.sessions.retrieve(id)))

    async def session_update(self, id: str, title: str) -> Any:
        return session(await value_of(self._beta.sessions.update(id, title=title)))

    async def session_list(self, agent_id: str, limit: int) -> Any:
        found = await all_of(self._beta.sessions.list(agent_id=agent_id, limit=limit))
        return [session(one) for one in found]

    async def session_archive(self, id: str) -> Any:
        return session(await value_of(self._beta.sessions.archive(id)))

    async def session_delete(self, id: str) -> Any:
        return (await value_of(self._beta.sessions.delete(id))).id

    async def send(self, session_id: str, events: list[dict[str, Any]]) -> Any:
        body = [event(one) for one in events]
        answer = await value_of(self._beta.sessions.events.send(session_id, events=body))
        return [one.to_dict(mode="json") for one in answer.data]

    async def stream_open(self, session_id: str) -> None:
        self._stream = await value_of(self._beta.sessions.events.stream(session_id))

    async def stream_next(self) -> Any:
        if hasattr(self._stream, "__anext__"):
            found = await anext(self._stream, None)
        else:
            found = next(self._stream, None)
        return None if found is None else found.to_dict(mode="json")

    async def stream_close(self) -> None:
        await value_of(self._stream.close())

    async def events_list(
        self,
        session_id: str,
        limit: int,
        types: list[str] | None = None,
        order: str | None = None,
    ) -> Any:
        more: dict[str, Any] = {"types": types, "order": order}
        chosen = {name: value for name, value in more.items() if value is not None}
        found = await all_of(self._beta.sessions.events.list(session_id, limit=limit, **chosen))
        return [one.to_dict(mode="json") for one in found]

    async def pending_actions(self, session_id: str) -> Any:
        # The SDK has no method for this route.
        path = f"/v1/sessions/{session_id}/pending_actions"
        found = (await value_of(self._client.get(path, cast_to=object)))["data"]
        return [{key: one[key] for key in ("event_id", "name", "answer_type")} for one in found]

    async def thread_list(self, session_id: str) -> Any:
        found = await all_of(self._beta.sessions.threads.list(session_id))
        return [
            {"id": one.id, "status": one.status, "parent": one.parent_thread_id} for one in found
        ]

    async def thread_events(self, session_id: str, thread_id: str, limit: int) -> Any:
        events = self._beta.sessions.threads.events
        found = await all_of(events.list(thread_id, session_id=session_id, limit=limit))
        return [one.to_dict(mode="json") for one in found]


async def answer(driver: Driver, line: str) -> dict[str, Any]:
    """The answer to one line."""
    asked = json.loads(line)
    try:
        return {"value": await getattr(driver, asked["op"])(**asked["args"])}
    except anthropic.APIStatusError as error:
        found = {"code": error.status_code, "message": error.message}
        return {"error": {**found, "request_id": error.request_id}}


async def main() -> None:
    """Answer every line."""
    driver = Driver(sys.argv[1])
    while line := await asyncio.to_thread(sys.stdin.readline):
        sys.stdout.write(json.dumps(await answer(driver, line)) + "\n")
        sys.stdout.flush()


asyncio.run(main())
