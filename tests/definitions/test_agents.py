"""Agents over REST, with the official client."""

from typing import Any

import anthropic
import pytest

from tests.definitions.support import calling, refusal
from tests.support.system import System

TOOLSET: Any = {"type": "agent_toolset_20260401"}
CUSTOM: Any = {
    "type": "custom",
    "name": "decide",
    "description": "d",
    "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}},
}
SERVER: Any = {"type": "url", "name": "s", "url": "https://mcp.example/x"}
MCP: Any = {"type": "mcp_toolset", "mcp_server_name": "s"}


async def test_what_is_created_is_retrieved_and_listed(running_system: System) -> None:
    def check(client: anthropic.Anthropic) -> None:
        agents = client.beta.agents
        made = agents.create(
            name="a",
            model={"id": "m", "effort": "high", "speed": "fast", "inference_geo": "eu"},
            tools=[CUSTOM, TOOLSET, MCP],
            mcp_servers=[SERVER],
            skills=[{"type": "anthropic", "skill_id": "pdf"}],
            metadata={"k": "v"},
        )
        assert made.model.effort is not None
        assert (made.model.effort.type, made.model.speed) == ("high", "fast")
        assert made.model.inference_geo == "eu"
        assert made.skills[0].version == "latest"
        assert made.multiagent is None
        assert made.execution_identity.type == "service_account"
        assert agents.retrieve(made.id) == made
        assert next(iter(agents.list())) == made
        assert list(agents.versions.list(made.id)) == [made]

    await calling(running_system, check)


async def test_web_tools_come_back_as_they_were_configured(running_system: System) -> None:
    search = {
        "name": "web_search",
        "allowed_domains": ["docs.example/api", "example.org"],
        "user_location": {"type": "approximate", "country": "DE", "timezone": "Europe/Berlin"},
    }
    fetch = {
        "name": "web_fetch",
        "type": "web_fetch",
        "blocked_domains": ["ads.example"],
        "max_content_tokens": 1000,
        "url_sources": {
            "user_input": "none",
            "client_tool_results": {
                "type": "only",
                "tools": [{"type": "tool_reference", "name": "decide"}],
            },
        },
    }

    def check(client: anthropic.Anthropic) -> None:
        toolset: Any = {**TOOLSET, "configs": [search, fetch, {"name": "bash", "enabled": None}]}
        made = client.beta.agents.create(name="a", model="m", tools=[CUSTOM, toolset])
        shown = made.to_dict(mode="json")["tools"]
        assert isinstance(shown, list)
        common = {"enabled": True, "permission_policy": {"type": "always_allow"}}
        tools: Any = shown
        assert tools[1]["configs"] == [
            {**common, **search, "type": "web_search"}
            | {
                "user_location": {
                    "type": "approximate",
                    "city": None,
                    "country": "DE",
                    "region": None,
                    "timezone": "Europe/Berlin",
                }
            },
            {**common, **fetch}
            | {
                "url_sources": {
                    "client_tool_results": {
                        "type": "only",
                        "tools": [{"type": "tool_reference", "name": "decide"}],
                    },
                    "server_tool_results": None,
                    "user_input": {"type": "none"},
                }
            },
            {**common, "name": "bash", "type": "bash"},
        ]

    await calling(running_system, check)


async def test_an_update_makes_a_version_and_old_ones_stay(running_system: System) -> None:
    def check(client: anthropic.Anthropic) -> None:
        agents = client.beta.agents
        first = agents.create(
            name="a",
            model={"id": "m", "effort": "low", "inference_geo": "eu", "speed": "fast"},
            description="d",
            system="s",
            tools=[CUSTOM, TOOLSET],
            metadata={"a": "1", "b": "2"},
        )
        same = agents.update(first.id, name="a", tools=[CUSTOM, TOOLSET], metadata={"c": None})
        assert same == first
        second = agents.update(
            first.id, version=1, system=None, description="", metadata={"a": None, "c": "3"}
        )
        assert (second.version, second.system, second.description) == (2, None, None)
        assert second.metadata == {"b": "2", "c": "3"}
        assert second.tools == first.tools
        assert second.created_at == first.created_at
        assert second.updated_at >= first.updated_at
        third = agents.update(first.id, model={"id": "m"}, tools=[])
        assert third.model.to_dict() == {
            "id": "m",
            "effort": {"type": "low"},
            "inference_geo": None,
            "speed": None,
        }
        assert third.tools == []
        fourth = agents.update(first.id, model="n")
        assert fourth.model.effort is None
        assert agents.retrieve(first.id, version=1) == first
        assert agents.retrieve(first.id, version=2) == second
        assert agents.retrieve(first.id) == fourth
        page = agents.versions.list(first.id, limit=1)
        assert page.next_page
        assert [agent.version for agent in page] == [4, 3, 2, 1]

    await calling(running_system, check)


async def test_a_stale_version_is_a_conflict_even_without_a_change(running_system: System) -> None:
    def check(client: anthropic.Anthropic) -> None:
        agents = client.beta.agents
        agent = agents.create(name="a", model="m")
        agents.update(agent.id, name="b")
        for name in ("b", "c"):
            with pytest.raises(anthropic.ConflictError) as caught:
                agents.update(agent.id, version=1, name=name)
            assert caught.value.response.headers["x-should-retry"] == "false"
            assert caught.value.type == "conflict_error"
            assert "version: the newest version" in caught.value.message
        assert agents.retrieve(agent.id).version == 2

    await calling(running_system, check)


async def test_an_archived_agent_does_not_change_and_is_listed_on_request(
    running_system: System,
) -> None:
    def check(client: anthropic.Anthropic) -> None:
        agents = client.beta.agents
        agent, other = agents.create(name="a", model="m"), agents.create(name="b", model="m")
        archived = agents.archive(agent.id)
        assert archived.archived_at is not None
        assert agents.archive(agent.id) == archived
        refusal(lambda: agents.update(agent.id, name="c"), 400, "is archived")
        assert agents.retrieve(agent.id, version=1) == archived
        assert [found.id for found in agents.list(limit=1)] == [other.id]
        every = [found.id for found in agents.list(limit=1, include_archived=True)]
        assert every == [other.id, agent.id]

    await calling(running_system, check)


async def test_a_list_is_walked_newest_first_and_filtered_by_creation(
    running_system: System,
) -> None:
    def check(client: anthropic.Anthropic) -> None:
        agents = client.beta.agents
        made = [agents.create(name=f"a{n}", model="m") for n in range(5)]
        ids = [agent.id for agent in reversed(made)]
        assert [agent.id for agent in agents.list(limit=2)] == ids
        first = agents.list(limit=2)
        assert first.next_page
        agents.create(name="later", model="m")
        behind = agents.list(limit=100, page=first.next_page)
        assert [agent.id for agent in behind] == ids[2:]
        middle = made[2].created_at
        found = {agent.id for agent in agents.list(created_at_gte=middle, created_at_lte=middle)}
        assert made[2].id in found
        assert not agents.list(created_at_lte="2001-01-01T00:00:00Z").data
        refusal(
            lambda: agents.list(page=first.next_page or "", created_at_lte="2001-01-01T00:00:00Z"),
            400,
            "page: the created_at filter",
        )
        versions = agents.versions
        refusal(lambda: versions.list(made[0].id, page=first.next_page or ""), 400, "page: must be")
        refusal(lambda: agents.list(page="nonsense"), 400, "page: must be the next_page")
        environments = client.beta.environments
        refusal(lambda: environments.list(page=first.next_page), 400, "page: must be")

    await calling(running_system, check)


TOO_LONG = "x" * 257
BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name: "),
    ({"name": TOO_LONG}, "name: "),
    ({"name": None}, "name: "),
    ({"model": None}, "model: "),
    ({"model": {"id": ""}}, "model.id: "),
    ({"model": {"id": "m", "effort": "extreme"}}, "model.effort"),
    ({"model": {"id": "m", "speed": "warp"}}, "model.speed: "),
    ({"model": {"id": "m", "temperature": 1}}, "model.temperature: unknown field"),
    ({"description": "x" * 2049}, "description: "),
    ({"system": "x" * 100_001}, "system: "),
    ({"multiagent": {"type": "coordinator", "agents": []}}, "multiagent: rosters"),
    ({"execution_identity": {"type": "aws_role", "role_arn": "a"}}, "execution_identity."),
    ({"skills": [{"type": "anthropic", "skill_id": "pdf"}]}, "skills: need"),
    ({"mcp_servers": [SERVER]}, "mcp_servers.0: no mcp_toolset"),
    ({"tools": [MCP]}, "tools.0.mcp_server_name: "),
    ({"tools": [{"type": "bash"}]}, "tools.0.type: "),
    ({"tools": [{**CUSTOM, "input_schema": {"type": "array"}}]}, "tools.0.input_schema.type: "),
    ({"tools": [{**TOOLSET, "configs": [{"name": "sh"}]}]}, "tools.0.configs.0.name: "),
    ({"surprise": 1}, "surprise: unknown field"),
    ({"metadata": {"k": "x" * 513}}, "metadata.k: "),
    ({"metadata": {str(n): "" for n in range(17)}}, "metadata: "),
]


async def test_bad_definitions_are_refused_by_path_and_store_nothing(
    running_system: System,
) -> None:
    raw = running_system.http()
    made = (await raw.post("/v1/agents", json={"name": "kept", "model": "m"})).json()
    for body, words in BAD:
        for path, whole in (("", {"name": "a", "model": "m", **body}), (f"/{made['id']}", body)):
            response = await raw.post(f"/v1/agents{path}", json=whole)
            error = response.json()["error"]
            assert (response.status_code, error["type"]) == (400, "invalid_request_error"), body
            assert error["message"].startswith(words), (error, body, path)
    listed = (await raw.get("/v1/agents?include_archived=true")).json()
    assert listed == {"data": [made], "next_page": None}


CALLS = [
    ("GET", "/v1/agents?limit=0", 400, "limit: "),
    ("GET", "/v1/agents?limit=101", 400, "limit: "),
    ("GET", "/v1/agents?limit=x", 400, "limit: "),
    ("GET", "/v1/agents?include_archived=yes", 400, "include_archived: "),
    ("GET", "/v1/agents?created_at%5Bgte%5D=yesterday", 400, "created_at[gte]: "),
    ("GET", "/v1/agents/{id}?version=0", 400, "version: "),
    ("GET", "/v1/agents/{id}?version=2", 404, "version: agent"),
    ("GET", "/v1/agents/agent_unknown", 404, "agent agent_unknown was not found"),
    ("GET", "/v1/agents/agent_unknown/versions", 404, "agent agent_unknown was not found"),
    ("GET", "/v1/agents/{id}/versions?limit=101", 400, "limit: "),
    ("POST", "/v1/agents/agent_unknown", 404, "agent agent_unknown was not found"),
    ("POST", "/v1/agents/agent_unknown/archive", 404, "agent agent_unknown was not found"),
    ("DELETE", "/v1/agents/{id}", 405, "DELETE is not allowed"),
]


async def test_bad_calls_are_answered_in_json(running_system: System) -> None:
    raw = running_system.http()
    made = (await raw.post("/v1/agents", json={"name": "kept", "model": "m"})).json()
    for method, path, status, words in CALLS:
        response = await raw.request(method, path.format(id=made["id"]))
        body = response.json()
        assert response.status_code == status, path
        assert body["type"] == "error"
        assert body["error"]["message"].startswith(words), body
        assert body["request_id"] == response.headers["request-id"]
