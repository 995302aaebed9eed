from collections.abc import AsyncGenerator

import httpx2
import pytest

from gateway.app import Gateway
from gateway.server import Server, serve
from tests.gateway.support import API_KEY, Behaviour, app_of, client_of, host_of


@pytest.fixture
def behaviour() -> Behaviour:
    return Behaviour()


@pytest.fixture
def app(behaviour: Behaviour) -> Gateway:
    return app_of(host_of(behaviour))


@pytest.fixture
async def client(app: Gateway) -> AsyncGenerator[httpx2.AsyncClient]:
    async with client_of(app) as client:
        yield client


@pytest.fixture
async def server(app: Gateway) -> AsyncGenerator[Server]:
    server = await serve(app, "127.0.0.1", 0)
    yield server
    await server.stop()


@pytest.fixture
async def http(server: Server) -> AsyncGenerator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{server.port}",
        headers={"authorization": f"Bearer {API_KEY}"},
        trust_env=False,
    ) as client:
        yield client
