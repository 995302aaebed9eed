"""What the session routes refuse: status, error type, the path of the fault; nothing is stored."""

import json
from typing import Any

import pytest

from tests.support.chat import Chat, message
from tests.support.system import System

METADATA_17 = {f"k{number}": "v" for number in range(17)}
AGENT_WITHOUT_ID = {"type": "agent_with_overrides", "system": "x"}
OUTCOME = {"type": "user.define_outcome", "description": "d", "rubric": {"type": "text"}}

CREATE: list[tuple[dict[str, Any], str]] = [
    ({"agent": None}, "agent: "),
    ({"agent": "agent_00000000000000000000000000"}, "agent: "),
    ({"agent": {"type": "agent", "id": "@agent", "version": 9}}, "agent: "),
    ({"agent": {"type": "agent", "id": "@agent", "version": 0}}, "agent.version: "),
    ({"agent": {"type": "assistant", "id": "@agent"}}, "agent.type: "),
    ({"agent": {"type": "agent", "id": "@agent", "system": "x"}}, "agent.system: "),
    ({"agent": AGENT_WITHOUT_ID}, "agent.id: "),
    ({"environment_id": "env_00000000000000000000000000"}, "environment_id: "),
    ({"environment_id": ""}, "environment_id: "),
    ({"title": "x" * 1001}, "title: "),
    ({"title": 7}, "title: "),
    ({"metadata": METADATA_17}, "metadata: "),
    ({"metadata": {"k": "x" * 513}}, "metadata.k: "),
    ({"metadata": {"k": None}}, "metadata.k: "),
    ({"vault_ids": ["vlt_1"]}, "vault_ids: "),
    ({"resources": [{"type": "file", "file_id": "file_1"}]}, "resources: "),
    ({"budget": {"type": "limit"}}, "budget: "),
    ({"initial_events": [OUTCOME]}, "initial_events.0"),
    ({"initial_events": [{"type": "user.interrupt"}]}, "initial_events.0.type: "),
    ({"initial_events": [message("x")] * 51}, "initial_events: "),
    ({"initial_events": [message("x"), message("")]}, "initial_events.1.content.0.text: "),
    ({"colour": "blue"}, "colour: "),
]
"""Changes of a good request → how the message begins."""

UPDATE: list[tuple[dict[str, Any], str]] = [
    ({"title": "x" * 1001}, "title: "),
    ({"metadata": METADATA_17}, "metadata: "),
    ({"metadata": {"k": "x" * 513}}, "metadata.k: "),
    ({"metadata": {"x" * 65: "v"}}, "metadata: "),
    ({"metadata": {"": "v"}}, "metadata: "),
    ({"metadata": {"k": 1}}, "metadata.k: "),
    ({"metadata": []}, "metadata: "),
    ({"budget": {"type": "limit"}}, "budget: "),
    ({"vault_ids": ["vlt_1"]}, "vault_ids: "),
    ({"agent": "agent_1"}, "agent: "),
    ({"agent": {"model": "claude-x"}}, "agent.model: "),
    ({"agent": {"update_mask": "tools"}}, "agent.update_mask: "),
    ({"environment_id": "env_1"}, "environment_id: "),
    ({"update_mask": "title"}, "update_mask: "),
    ({"title": "good", "status": "idle"}, "status: "),
]

LIST: list[tuple[str, str]] = [
    ("limit=0", "limit: "),
    ("limit=101", "limit: "),
    ("limit=many", "limit: "),
    ("order=sideways", "order: "),
    ("page=nonsense", "page: "),
    ("agent_version=1", "agent_version: "),
    ("agent_id=agent_1&agent_version=0", "agent_version: "),
    ("statuses[]=done", "statuses"),
    ("created_at[gte]=yesterday", "created_at[gte]: "),
    ("include_archived=maybe", "include_archived: "),
]

THREADS: list[tuple[str, str, int]] = [
    ("", "page=x", 400),
    ("", "limit=0", 400),
    ("", "limit=1001", 400),
    ("", "statuses[]=done", 400),
    ("/sthr_00000000000000000000000000", "", 404),
    ("/nonsense", "", 404),
    ("/sthr_00000000000000000000000000/events", "", 404),
    ("/sthr_00000000000000000000000000/stream", "", 404),
    ("/@thread/events", "limit=0", 400),
    ("/@thread/events", "page=x", 400),
    ("/@thread/events", "thread_id=other", 400),
    ("/@thread/stream", "event_deltas[]=agent.tool_use", 400),
]


def check_error(response: Any, status: int, begins: str) -> None:
    body = response.json()
    assert response.status_code == status, body
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert body["error"]["message"].startswith(begins), body["error"]["message"]


class Rest:
    """Requests without a client's own checks."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.path = f"/v1/sessions/{chat.id}"

    async def ask(self, verb: str, path: str, body: Any = None) -> Any:
        client = self.chat.client
        headers = {"authorization": f"Bearer {client.api_key}", "content-type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        url = str(client.base_url).rstrip("/") + path
        return await client._client.request(verb, url, headers=headers, content=content)

    async def state(self) -> Any:
        """Everything that a refused request could have changed."""
        sessions = (await self.ask("GET", "/v1/sessions?include_archived=true&limit=100")).json()
        for one in sessions["data"]:
            del one["stats"]
        return sessions, await self.chat.history()


async def test_bad_sessions_are_not_created(running_system: System) -> None:
    chat = await Chat.open(running_system)
    rest = Rest(chat)
    before = await rest.state()
    good = {"agent": chat.agent_id, "environment_id": chat.environment_id}
    for change, begins in CREATE:
        text = json.dumps({**good, **change}).replace("@agent", chat.agent_id)
        check_error(await rest.ask("POST", "/v1/sessions", json.loads(text)), 400, begins)
    for missing in good:
        rest_of_it = {name: value for name, value in good.items() if name != missing}
        check_error(await rest.ask("POST", "/v1/sessions", rest_of_it), 400, f"{missing}: ")
    assert await rest.state() == before
    empty = {"vault_ids": [], "resources": [], "budget": None, "initial_events": None}
    nothing = {"vault_ids": None, "resources": None, "title": None, "initial_events": []}
    for more in (empty, nothing):
        assert (await rest.ask("POST", "/v1/sessions", {**good, **more})).status_code == 200


async def test_bad_updates_change_nothing(running_system: System) -> None:
    chat = await Chat.open(running_system)
    rest = Rest(chat)
    before = await rest.state()
    for change, begins in UPDATE:
        check_error(await rest.ask("POST", rest.path, change), 400, begins)
    unknown = "/v1/sessions/sesn_00000000000000000000000000"
    check_error(await rest.ask("POST", unknown, {"title": "x"}), 404, "session sesn_")
    nothing = {"vault_ids": [], "budget": None, "agent": {}, "metadata": None}
    for change in ({}, nothing, {"title": None}):
        assert (await rest.ask("POST", rest.path, change)).status_code == 200
    assert await rest.state() == before


async def test_bad_queries_are_refused(running_system: System) -> None:
    rest = Rest(await Chat.open(running_system))
    for query, begins in LIST:
        check_error(await rest.ask("GET", f"/v1/sessions?{query}"), 400, begins)
    thread = (await rest.ask("GET", f"{rest.path}/threads")).json()["data"][0]["id"]
    for tail, query, status in THREADS:
        path = f"{rest.path}/threads{tail.replace('@thread', thread)}?{query}"
        begins = "thread " if status == 404 else query.partition("=")[0].partition("[")[0]
        check_error(await rest.ask("GET", path), status, begins)


@pytest.mark.parametrize("tail", ["/archive", "/threads/@thread/archive"])
async def test_bad_archives_change_nothing(running_system: System, tail: str) -> None:
    rest = Rest(await Chat.open(running_system))
    thread = (await rest.ask("GET", f"{rest.path}/threads")).json()["data"][0]["id"]
    before = await rest.state()
    path = rest.path + tail.replace("@thread", thread)
    check_error(await rest.ask("POST", path, {"force": True}), 400, "force: ")
    check_error(await rest.ask("POST", path, []), 400, "")
    for id in ("sesn_00000000000000000000000000", "nonsense", "sesn_%00"):
        unknown = path.replace(rest.chat.id, id)
        check_error(await rest.ask("POST", unknown), 404, "session ")
    assert (await rest.ask("GET", path)).status_code == 405
    assert await rest.state() == before
