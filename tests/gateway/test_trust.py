"""The gateway passes the client's own credential and nothing else; services decide."""

from typing import Any

import httpx2
import pytest

from gateway.app import Gateway
from tests.gateway.support import API_KEY, SERVICE_KEY, SESSION, Behaviour, client_of

PATH = f"/v1/sessions/{SESSION}"
BEARER = f"Bearer {API_KEY}"


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": BEARER},
        {"authorization": f"bearer  {API_KEY} "},
        {"x-api-key": API_KEY},
        {"authorization": BEARER, "x-api-key": "unknown"},
        {"authorization": "Bearer ", "x-api-key": API_KEY},
        {"authorization": "Basic eDp5", "x-api-key": API_KEY},
    ],
)
async def test_a_key_is_taken_from_either_header(
    app: Gateway, behaviour: Behaviour, headers: dict[str, str]
) -> None:
    async with client_of(app) as client:
        del client.headers["authorization"]
        response = await client.get(PATH, headers=headers)
    assert response.status_code == 200
    assert behaviour.contexts[0].workspace_id == "wrkspc_1"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer unknown"},
        {"authorization": "Bearer unknown", "x-api-key": API_KEY},
        {"authorization": f"Bearer {SERVICE_KEY}"},
        {"x-api-key": SERVICE_KEY},
        {"authorization": "Bearer schlüssel".encode("latin-1")},
        {"x-workspace-id": "wrkspc_1"},
    ],
)
async def test_anything_else_is_401_on_every_kind_of_route(
    app: Gateway, behaviour: Behaviour, headers: dict[str, Any]
) -> None:
    async with client_of(app) as client:
        del client.headers["authorization"]
        for path in (PATH, f"{PATH}/events", f"{PATH}/events/stream"):
            response = await client.get(path, headers=headers)
            assert response.status_code == 401
            assert response.json()["error"]["type"] == "authentication_error"
    assert behaviour.calls == []


@pytest.mark.parametrize("body", [b"{", b'{"unknown": 1}', b"x" * 100])
async def test_without_a_credential_no_body_is_read(
    app: Gateway, behaviour: Behaviour, body: bytes
) -> None:
    async with client_of(app) as client:
        del client.headers["authorization"]
        response = await client.post(f"{PATH}/events", content=body)
    assert response.status_code == 401
    assert behaviour.calls == []


async def test_health_needs_no_credential(app: Gateway) -> None:
    async with client_of(app) as client:
        del client.headers["authorization"]
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).json() == {"status": "ready"}


@pytest.mark.parametrize("path", ["TurnService/Attach", "SessionService/GetSession"])
async def test_grpc_paths_are_no_rest_paths(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.post(f"/counterfoil.ledger.v1.{path}")).status_code == 404
