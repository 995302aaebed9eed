"""The registry over PostgreSQL."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from counterfoil.registry.v1 import agent_pb2, environment_pb2, registry_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import ids
from foundation.errors import Failure
from foundation.storage import Database, SealRing
from foundation.storage.testing import assert_schema_matches, assert_sql_prepares
from services.registry import schema, store
from services.registry.bootstrap import ensure_workspace
from services.registry.keys import load_pepper
from services.registry.service import RegistryServicer
from tests.services.registry.conftest import KEY, KEY_OF_OTHERS, Registry
from tests.support.postgres import SessionPostgres

NOT_FOUND = reasons.ERROR_REASON_NOT_FOUND
NO_ENVIRONMENT = reasons.ERROR_REASON_ENVIRONMENT_NOT_FOUND
SECRET = "the system prompt that nobody may read"


async def test_schema_is_what_the_migrations_make(registry: Registry) -> None:
    await assert_schema_matches("registry", schema.metadata, registry.dsn)


async def test_every_statement_prepares(registry: Registry) -> None:
    assert await assert_sql_prepares(store, registry.dsn) == 25


def agent_request(name: str = "a") -> agent_pb2.CreateAgentRequest:
    return agent_pb2.CreateAgentRequest(
        name=name, model=agent_pb2.ModelConfig(id="m"), system=SECRET, metadata={"k": "v"}
    )


async def create_agent(registry: Registry, key: str = KEY) -> agent_pb2.Agent:
    return (await registry.agents(key).CreateAgent(agent_request())).agent


async def create_environment(
    registry: Registry, name: str = "e", key: str = KEY
) -> environment_pb2.Environment:
    request = environment_pb2.CreateEnvironmentRequest(name=name)
    return (await registry.environments(key).CreateEnvironment(request)).environment


async def test_a_created_agent_is_readable_at_once_and_the_same(registry: Registry) -> None:
    created = await create_agent(registry)
    assert created.version == 1
    assert created.id.startswith("agent_")
    assert created.created_at == created.updated_at
    got = await registry.agents().GetAgent(agent_pb2.GetAgentRequest(agent_id=created.id))
    assert got.agent == created


async def test_creating_twice_makes_two_agents(registry: Registry) -> None:
    assert (await create_agent(registry)).id != (await create_agent(registry)).id


async def test_archiving_twice_keeps_the_first_time(registry: Registry) -> None:
    id = (await create_agent(registry)).id
    request = agent_pb2.ArchiveAgentRequest(agent_id=id)
    first = (await registry.agents().ArchiveAgent(request)).agent
    again = (await registry.agents().ArchiveAgent(request)).agent
    assert first == again
    assert first.HasField("archived_at")
    assert first.updated_at == first.archived_at
    assert (await registry.agents().GetAgent(agent_pb2.GetAgentRequest(agent_id=id))).agent == first


async def test_what_belongs_to_others_is_not_found(registry: Registry) -> None:
    agent, environment = await create_agent(registry), await create_environment(registry)
    agents, environments = registry.agents(KEY_OF_OTHERS), registry.environments(KEY_OF_OTHERS)
    get_environment = environment_pb2.GetEnvironmentRequest(environment_id=environment.id)
    delete = environment_pb2.DeleteEnvironmentRequest(environment_id=environment.id)
    archive = environment_pb2.ArchiveEnvironmentRequest(environment_id=environment.id)
    update = environment_pb2.UpdateEnvironmentRequest(environment_id=environment.id, name="x")
    calls: list[tuple[Any, Any, int]] = [
        (agents.GetAgent, agent_pb2.GetAgentRequest(agent_id=agent.id), NOT_FOUND),
        (agents.ArchiveAgent, agent_pb2.ArchiveAgentRequest(agent_id=agent.id), NOT_FOUND),
        (agents.UpdateAgent, agent_pb2.UpdateAgentRequest(agent_id=agent.id, name="x"), NOT_FOUND),
        (
            agents.ListAgentVersions,
            agent_pb2.ListAgentVersionsRequest(agent_id=agent.id),
            NOT_FOUND,
        ),
        (environments.GetEnvironment, get_environment, NO_ENVIRONMENT),
        (environments.ArchiveEnvironment, archive, NO_ENVIRONMENT),
        (environments.UpdateEnvironment, update, NO_ENVIRONMENT),
        (environments.DeleteEnvironment, delete, NO_ENVIRONMENT),
    ]
    for method, request, reason in calls:
        with pytest.raises(Failure) as failure:
            await method(request)
        assert failure.value.reason == reason
    assert not (await agents.ListAgents(agent_pb2.ListAgentsRequest(include_archived=True))).data
    every = environment_pb2.ListEnvironmentsRequest(include_archived=True)
    assert not (await environments.ListEnvironments(every)).data
    assert (await registry.environments().GetEnvironment(get_environment)).environment.id


@pytest.mark.parametrize("id", ["x", "agent_", "agent_\0" + "0" * 25, "é" * 20, "' OR 1=1 --"])
async def test_an_id_that_cannot_exist_is_not_found(registry: Registry, id: str) -> None:
    with pytest.raises(Failure) as failure:
        await registry.agents().GetAgent(agent_pb2.GetAgentRequest(agent_id=id))
    assert failure.value.reason == reasons.ERROR_REASON_NOT_FOUND


async def test_an_environment_name_is_used_once(registry: Registry) -> None:
    results = await asyncio.gather(
        *(create_environment(registry, "same\0name") for _ in range(5)), return_exceptions=True
    )
    made = [r for r in results if isinstance(r, environment_pb2.Environment)]
    refused = [r for r in results if isinstance(r, Failure)]
    assert len(made) == 1
    assert {r.reason for r in refused} == {reasons.ERROR_REASON_CONFLICT}
    assert (await create_environment(registry, "same\0name", KEY_OF_OTHERS)).name == made[0].name
    delete = environment_pb2.DeleteEnvironmentRequest(environment_id=made[0].id)
    assert (await registry.environments().DeleteEnvironment(delete)).id == made[0].id
    assert (await create_environment(registry, "same\0name")).id != made[0].id


async def test_a_second_delete_is_not_found(registry: Registry) -> None:
    id = (await create_environment(registry)).id
    delete = environment_pb2.DeleteEnvironmentRequest(environment_id=id)
    await registry.environments().DeleteEnvironment(delete)
    with pytest.raises(Failure) as failure:
        await registry.environments().DeleteEnvironment(delete)
    assert failure.value.reason == NO_ENVIRONMENT


def resolve(
    registry: Registry, agent: str, environment: str, version: int = 0
) -> Awaitable[registry_pb2.ResolveDefinitionsResponse]:
    return registry.internal().ResolveDefinitions(
        registry_pb2.ResolveDefinitionsRequest(
            workspace_id=registry.workspace,
            agent_id=agent,
            agent_version=version,
            environment_id=environment,
        )
    )


async def test_resolving_returns_both_definitions(registry: Registry) -> None:
    agent, environment = await create_agent(registry), await create_environment(registry)
    for version in (0, 1):
        got = await resolve(registry, agent.id, environment.id, version)
        assert got.agent == agent
        assert got.environment == environment


async def test_resolving_names_what_is_missing(registry: Registry) -> None:
    agent, environment = await create_agent(registry), await create_environment(registry)
    theirs = await create_agent(registry, KEY_OF_OTHERS)
    absent = ids.new("environment")
    for agent_id, environment_id, version, path in (
        (ids.new("agent"), environment.id, 0, "agent"),
        (theirs.id, environment.id, 0, "agent"),
        (agent.id, environment.id, 2, "agent"),
        (agent.id, absent, 0, "environment_id"),
        ("nonsense", environment.id, 0, "agent"),
    ):
        with pytest.raises(Failure) as failure:
            await resolve(registry, agent_id, environment_id, version)
        assert failure.value.reason == reasons.ERROR_REASON_NOT_FOUND
        assert failure.value.path == path


async def test_an_archived_agent_starts_no_session(registry: Registry) -> None:
    agent, environment = await create_agent(registry), await create_environment(registry)
    await registry.agents().ArchiveAgent(agent_pb2.ArchiveAgentRequest(agent_id=agent.id))
    with pytest.raises(Failure) as failure:
        await resolve(registry, agent.id, environment.id)
    assert failure.value.reason == reasons.ERROR_REASON_WRONG_STATE


async def test_no_row_holds_a_key_or_a_prompt_in_readable_form(registry: Registry) -> None:
    await create_agent(registry)
    for table in schema.metadata.sorted_tables:
        rows = await registry.db.fetch(f"SELECT * FROM registry.{table.name}")
        for row in rows:
            stored = b"\n".join(
                value if isinstance(value, bytes) else str(value).encode() for value in row.values()
            )
            assert KEY.encode() not in stored
            assert SECRET.encode() not in stored


async def authenticate(registry: Registry, key: str) -> registry_pb2.AuthenticateResponse:
    request = registry_pb2.AuthenticateRequest(api_key=key)
    return await registry.internal().Authenticate(request)


async def test_a_key_belongs_to_its_workspace(registry: Registry) -> None:
    assert (await authenticate(registry, KEY)).workspace_id == registry.workspace
    theirs = await authenticate(registry, KEY_OF_OTHERS)
    assert theirs.workspace_id == registry.workspace_of_others
    for key in ("x", KEY + " ", KEY[:-1], "\0", "é" * 100):
        with pytest.raises(Failure) as failure:
            await authenticate(registry, key)
        assert failure.value.reason == reasons.ERROR_REASON_UNAUTHENTICATED


async def test_another_bootstrap_key_replaces_the_first(registry: Registry) -> None:
    before = await authenticate(registry, KEY)
    again = await ensure_workspace(registry.db, registry.ring, "first", KEY)
    assert again == registry.workspace
    assert await authenticate(registry, KEY) == before
    assert await ensure_workspace(registry.db, registry.ring, "first", "new") == again
    assert (await authenticate(registry, "new")).workspace_id == again
    with pytest.raises(Failure):
        await authenticate(registry, KEY)


async def test_processes_that_start_together_agree(
    postgres: SessionPostgres, tmp_path: Path
) -> None:
    ring = SealRing.generate(tmp_path / "seal.json")
    async with postgres.database("registry") as dsn:
        db = await Database.open(dsn, service="registry", pool_size=4)
        try:
            starts = (ensure_workspace(db, ring, "w", "key") for _ in range(4))
            assert len(set(await asyncio.gather(*starts))) == 1
            servicer = RegistryServicer(db, ring, await load_pepper(db, ring))
            request = registry_pb2.AuthenticateRequest(api_key="key")
            assert (await servicer.Authenticate(request, None)).workspace_id
            assert await db.fetchval("SELECT count(*) FROM registry.api_keys") == 1
        finally:
            await db.close()


async def test_keys_survive_a_rotation_of_the_ring(registry: Registry, tmp_path: Path) -> None:
    pepper = await load_pepper(registry.db, registry.ring)
    assert await load_pepper(registry.db, SealRing.rotate(tmp_path / "seal.json")) == pepper


async def test_updates_that_run_together_each_make_one_version(registry: Registry) -> None:
    id = (await create_agent(registry)).id
    update = registry.agents().UpdateAgent
    await asyncio.gather(
        *(update(agent_pb2.UpdateAgentRequest(agent_id=id, name=f"n{n}")) for n in range(5))
    )
    listed = await registry.agents().ListAgentVersions(
        agent_pb2.ListAgentVersionsRequest(agent_id=id)
    )
    assert [agent.version for agent in listed.data] == [6, 5, 4, 3, 2, 1]
    results = await asyncio.gather(
        *(
            update(agent_pb2.UpdateAgentRequest(agent_id=id, name=f"m{n}", version=6))
            for n in range(3)
        ),
        return_exceptions=True,
    )
    refused = [found for found in results if isinstance(found, Failure)]
    assert [found.reason for found in refused] == [reasons.ERROR_REASON_CONFLICT] * 2


async def test_resolving_applies_and_checks_overrides(registry: Registry) -> None:
    agent, environment = await create_agent(registry), await create_environment(registry)
    request = registry_pb2.ResolveDefinitionsRequest(
        workspace_id=registry.workspace,
        agent_id=agent.id,
        environment_id=environment.id,
        overrides=agent_pb2.AgentOverrides(system="other"),
    )
    resolved = (await registry.internal().ResolveDefinitions(request)).agent
    assert (resolved.system, resolved.version, resolved.name) == ("other", 1, agent.name)
    skill = agent_pb2.Skill(type="custom", skill_id="x")
    request.overrides.skills.append(skill)
    with pytest.raises(Failure) as failure:
        await registry.internal().ResolveDefinitions(request)
    assert failure.value.path == "agent.skills"
    pinned = agent_pb2.SessionAgent(id=agent.id, name="a", model=agent.model, version=1)
    changed = await registry.internal().OverrideAgent(
        registry_pb2.OverrideAgentRequest(
            agent=pinned, overrides=agent_pb2.AgentOverrides(system="s")
        )
    )
    assert (changed.agent.system, changed.agent.id, changed.agent.version) == ("s", agent.id, 1)
