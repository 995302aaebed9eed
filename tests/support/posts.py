"""A valid request for every public POST, by RPC: for tests that walk over all of them."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2

from gateway.app import CONTRACTS
from gateway.routes import Route, routes_of

BODIES: dict[str, dict[str, Any]] = {
    "CreateAgent": {"name": "posted", "model": "claude-sonnet-4-5"},
    "CreateEnvironment": {"name": "posted"},
    "CreateSession": {"agent": "<agent_id>", "environment_id": "<environment_id>"},
    "ForkSession": {},
    "SubmitEvents": {
        "events": [{"type": "user.message", "content": [{"type": "text", "text": "hello"}]}]
    },
    "UpdateAgent": {"description": "posted"},
    "UpdateEnvironment": {"description": "posted"},
    "UpdateSession": {"title": "posted"},
}
"""Bodies of the calls that take one. `<name>` stands for an id, names become unique."""

EMPTY = ("Archive",)
"""Calls whose name begins so take no body."""


NOT_SENT = "snap_00000000000000000000000000"
"""A snapshot that nobody has: no POST names one."""


@dataclass(frozen=True)
class Things:
    """Ids that requests refer to."""

    ids: dict[str, str]

    @classmethod
    async def make(cls, http: httpx2.AsyncClient) -> "Things":
        """A new agent, environment and session with its primary thread."""
        agent = await _created(http, "/v1/agents", BODIES["CreateAgent"])
        named = {"name": f"things {uuid.uuid4()}"}
        environment = await _created(http, "/v1/environments", named)
        made = {"agent_id": agent, "environment_id": environment}
        body = {"agent": agent, "environment_id": environment}
        made["session_id"] = await _created(http, "/v1/sessions", body)
        threads = await http.get(f"/v1/sessions/{made['session_id']}/threads")
        made["thread_id"] = threads.json()["data"][0]["id"]
        made["snapshot_id"] = made["other_snapshot_id"] = NOT_SENT
        return cls(made)

    def path(self, route: Route) -> str:
        """The route's path with these ids; KeyError for a variable that nobody thought of."""
        return route.template.format(**self.ids)

    def body(self, route: Route) -> dict[str, Any] | None:
        """A valid body, or None for a call without."""
        name = route.method.name
        if name.startswith(EMPTY):
            return None
        filled = {key: self._filled(value) for key, value in BODIES[name].items()}
        if "name" in filled:
            filled["name"] += f" {uuid.uuid4()}"
        return filled

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith("<"):
            return self.ids[value[1:-1]]
        return value


def posts() -> Iterator[Route]:
    """Every public POST of the contracts."""
    return (route for route in routes_of(CONTRACTS) if route.verb == "POST")


async def _created(http: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> str:
    answer = await http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]
