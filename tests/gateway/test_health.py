"""`/readyz` names what is missing; `/healthz` only says that the process answers."""

import asyncio

import pytest

from gateway import app as gateway_app
from gateway.app import create_app
from tests.gateway.support import Behaviour, client_of, host_of


async def test_readiness_names_the_failing_dependency(behaviour: Behaviour) -> None:
    async def readiness() -> dict[str, str | None]:
        return {"ledger database": "connection refused", "registry database": None}

    host = host_of(behaviour)
    async with client_of(create_app(lambda _: host.channel(), readiness=readiness)) as client:
        response = await client.get("/readyz")
        assert response.status_code == 503
        assert response.json() == {
            "status": "not ready",
            "failing": {"ledger database": "connection refused"},
        }
        assert (await client.get("/healthz")).status_code == 200


async def test_readiness_that_does_not_answer_is_not_ready(
    behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def readiness() -> dict[str, str | None]:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(gateway_app, "_READINESS_SECONDS", 0.01)
    host = host_of(behaviour)
    async with client_of(create_app(lambda _: host.channel(), readiness=readiness)) as client:
        response = await client.get("/readyz")
        assert (response.status_code, *response.json()["failing"]) == (503, "readiness")
