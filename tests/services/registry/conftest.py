"""A registry over a fresh database, reached through the real call pipeline."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest
from counterfoil.registry.v1 import (
    agent_pb2_grpc,
    environment_pb2_grpc,
    registry_pb2,
    registry_pb2_grpc,
)

from foundation.errors import Failure
from foundation.rpc.admission import Admission, Principal
from foundation.rpc.host import Host
from foundation.storage import Database, SealRing
from services.registry.bootstrap import ensure_workspace
from services.registry.keys import load_pepper
from services.registry.service import AgentServicer, EnvironmentServicer, RegistryServicer
from tests.support.postgres import SessionPostgres

KEY = "key of the first workspace"
KEY_OF_OTHERS = "key of the second workspace"
SERVICE_KEY = "service"


@dataclass
class Registry:
    db: Database
    ring: SealRing
    host: Host
    dsn: str
    workspace: str
    workspace_of_others: str

    def agents(self, key: str = KEY) -> agent_pb2_grpc.AgentServiceStub:
        return agent_pb2_grpc.AgentServiceStub(self.host.channel(key))

    def environments(self, key: str = KEY) -> environment_pb2_grpc.EnvironmentServiceStub:
        return environment_pb2_grpc.EnvironmentServiceStub(self.host.channel(key))

    def internal(self, key: str = SERVICE_KEY) -> registry_pb2_grpc.RegistryServiceStub:
        return registry_pb2_grpc.RegistryServiceStub(self.host.channel(key))


@pytest.fixture
async def registry(postgres: SessionPostgres, tmp_path: Path) -> AsyncGenerator[Registry]:
    ring = SealRing.generate(tmp_path / "seal.json")
    async with postgres.database("registry") as dsn:
        db = await Database.open(dsn, service="registry", pool_size=4)
        try:
            first = await ensure_workspace(db, ring, "first", KEY)
            second = await ensure_workspace(db, ring, "second", KEY_OF_OTHERS)
            servicer = RegistryServicer(db, ring, await load_pepper(db, ring))

            async def authenticate(key: str) -> Principal | None:
                try:
                    request = registry_pb2.AuthenticateRequest(api_key=key)
                    return await servicer.Authenticate(request, None)
                except Failure:
                    return None

            host = Host(Admission(SERVICE_KEY, authenticate))
            host.register(
                agent_pb2_grpc.add_AgentServiceServicer_to_server, AgentServicer(db, ring)
            )
            host.register(
                environment_pb2_grpc.add_EnvironmentServiceServicer_to_server,
                EnvironmentServicer(db, ring),
            )
            host.register(registry_pb2_grpc.add_RegistryServiceServicer_to_server, servicer)
            yield Registry(db, ring, host, dsn, first, second)
        finally:
            await db.close()
