"""Environments over REST, with the official client."""

from typing import Any

import anthropic
import pytest
from anthropic.types.beta import BetaEnvironmentArchivedError

from tests.definitions.support import calling, refusal
from tests.support.system import System

MANAGERS = ("apt", "cargo", "gem", "go", "npm", "pip")
EMPTY: Any = {"type": "packages", **{manager: [] for manager in MANAGERS}}
LIMITED: Any = {"type": "limited", "allow_package_managers": True, "allowed_hosts": ["a.example"]}


async def test_what_is_created_is_retrieved_listed_and_deleted(running_system: System) -> None:
    def check(client: anthropic.Anthropic) -> None:
        environments = client.beta.environments
        made = environments.create(name="e", description="", metadata={"k": "v"})
        assert made.config.to_dict() == {
            "type": "cloud",
            "networking": {"type": "unrestricted"},
            "packages": EMPTY,
        }
        assert (made.description, made.scope) == ("", "organization")
        assert made.to_dict()["state"] == "active"
        hosted = environments.create(name="h", config={"type": "self_hosted"}, scope="organization")
        assert environments.retrieve(made.id) == made
        assert [found.id for found in environments.list(limit=1)] == [hosted.id, made.id]
        assert environments.delete(hosted.id).type == "environment_deleted"
        refusal(lambda: environments.retrieve(hosted.id), 404, "was not found")
        assert environments.list().data == [made]

    await calling(running_system, check)


async def test_an_update_keeps_what_it_leaves_out(running_system: System) -> None:
    def check(client: anthropic.Anthropic) -> None:
        environments = client.beta.environments
        made = environments.create(
            name="e",
            description="d",
            config={
                "type": "cloud",
                "networking": LIMITED,
                "packages": {"type": "packages", "pip": ["x"], "npm": ["y"]},
            },
            metadata={"a": "1", "b": "2"},
        )
        same = environments.update(made.id, name="e", config={"type": "cloud"}, metadata={})
        assert same == made
        changed = environments.update(
            made.id,
            config={
                "type": "cloud",
                "networking": {"type": "limited", "allow_mcp_servers": True},
                "packages": {"type": "packages", "npm": []},
            },
            metadata={"a": None, "b": "", "c": "3"},
            description=None,
        )
        assert changed.config.to_dict() == {
            "type": "cloud",
            "networking": {**LIMITED, "allow_mcp_servers": True},
            "packages": {**EMPTY, "pip": ["x"]},
        }
        assert (changed.metadata, changed.description) == ({"c": "3"}, None)
        assert changed.updated_at >= made.updated_at
        opened = environments.update(
            made.id,
            name="f",
            config={"type": "cloud", "networking": {"type": "unrestricted"}},
        )
        assert opened.config.to_dict()["networking"] == {"type": "unrestricted"}
        assert opened.name == "f"
        assert environments.retrieve(made.id) == opened

    await calling(running_system, check)


async def test_an_archived_environment_frees_its_name_and_does_not_change(
    running_system: System,
) -> None:
    def check(client: anthropic.Anthropic) -> None:
        environments = client.beta.environments
        made = environments.create(name="e")
        with pytest.raises(anthropic.ConflictError) as caught:
            environments.create(name="e")
        assert caught.value.response.headers["x-should-retry"] == "false"
        other = environments.create(name="f")
        refusal(lambda: environments.update(other.id, name="e"), 409, "name: ")
        archived = environments.archive(made.id)
        assert archived.archived_at is not None
        assert archived.to_dict()["state"] == "archived"
        assert environments.archive(made.id) == archived
        with pytest.raises(BetaEnvironmentArchivedError):
            environments.update(made.id, name="g")
        assert environments.update(other.id, name="e").name == "e"
        assert [found.id for found in environments.list()] == [other.id]
        every = [found.id for found in environments.list(include_archived=True, limit=1)]
        assert every == [other.id, made.id]
        agent = client.beta.agents.create(name="a", model="m")
        refusal(
            lambda: client.beta.sessions.create(agent=agent.id, environment_id=made.id),
            400,
            "environment_id: ",
        )

    await calling(running_system, check)


HOSTS = {"type": "cloud", "networking": {"type": "limited", "allowed_hosts": ["https://x"]}}
CLOSED = {"type": "cloud", "networking": {"type": "limited"}, "packages": {"pip": ["x"]}}
BAD: list[tuple[dict[str, Any], str, str | None]] = [
    ({"name": ""}, "name: ", None),
    ({"name": "x" * 257}, "name: ", None),
    ({"description": "x" * 2049}, "description: ", None),
    ({"scope": "account"}, "scope: must be organization", None),
    ({"scope": "planet"}, "scope: ", None),
    ({"config": {"type": "moon"}}, "config.type: ", None),
    ({"config": HOSTS}, "config.networking.allowed_hosts.0: ", None),
    ({"config": CLOSED}, "config.packages: needs", None),
    ({"config": {"type": "cloud", "packages": {"pip": ["-e"]}}}, "config.packages.pip.0: ", None),
    ({"config": {"type": "self_hosted", "networking": None}}, "config.networking: ", None),
    ({"surprise": 1}, "surprise: unknown field", None),
]


async def test_bad_definitions_are_refused_by_path_and_store_nothing(
    running_system: System,
) -> None:
    raw = running_system.http()
    made = (await raw.post("/v1/environments", json={"name": "kept"})).json()
    own = f"/v1/environments/{made['id']}"
    rows = [
        (path, whole, words, code)
        for body, words, code in BAD
        for path, whole in (("/v1/environments", {"name": "e", **body}), (own, body))
    ]
    rows += [
        (own, {"config": {"type": "self_hosted"}}, "config.type: ", "invalid_config_type_change"),
        (own, {"metadata": {"k": "x" * 513}}, "metadata.k: ", "invalid_metadata"),
        (own, {"metadata": {str(n): "v" for n in range(17)}}, "metadata: ", "invalid_metadata"),
    ]
    for path, body, words, code in rows:
        response = await raw.post(path, json=body)
        error = response.json()["error"]
        assert (response.status_code, error["type"]) == (400, "invalid_request_error"), body
        assert error["message"].startswith(words), (error, body)
        assert error.get("details") == ({"error_code": code} if code else None)
    listed = (await raw.get("/v1/environments?include_archived=true")).json()
    assert listed == {"data": [made], "next_page": None}


CALLS = [
    ("GET", "/v1/environments?limit=0", 400, "limit: "),
    ("GET", "/v1/environments?limit=101", 400, "limit: "),
    ("GET", "/v1/environments?page=x", 400, "page: "),
    ("GET", "/v1/environments?include_archived=1", 400, "include_archived: "),
    ("GET", "/v1/environments/env_unknown", 404, "environment env_unknown was not found"),
    ("POST", "/v1/environments/env_unknown", 404, "environment env_unknown was not found"),
    ("POST", "/v1/environments/env_unknown/archive", 404, "environment env_unknown"),
    ("DELETE", "/v1/environments/env_unknown", 404, "environment env_unknown was not found"),
    ("PUT", "/v1/environments/env_unknown", 405, "PUT is not allowed"),
]


async def test_bad_calls_are_answered_in_json(running_system: System) -> None:
    raw = running_system.http()
    for method, path, status, words in CALLS:
        response = await raw.request(method, path)
        body = response.json()
        assert response.status_code == status, path
        assert body["error"]["message"].startswith(words), body
        if status == 404:
            assert body["error"]["details"] == {"error_code": "environment_not_found"}
