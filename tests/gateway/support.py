"""The gateway over servicers of this process, and clients for it."""

import json
from typing import Any

import httpx2
from counterfoil.ledger.v1 import session_pb2, session_pb2_grpc
from counterfoil.registry.v1 import agent_pb2_grpc, environment_pb2_grpc, registry_pb2

from foundation.errors import Failure
from foundation.rpc.admission import Admission
from foundation.rpc.host import Host
from gateway.app import Gateway, create_app
from tests.gateway.service import Agents, Behaviour, Environments, Sessions

API_KEY = "workspace-key"
SERVICE_KEY = "service-key"
SESSION = "sesn_0000000000000000000000000a"


def frame(position: int, type_: str, json_text: str | None = None) -> session_pb2.StreamFrame:
    text = json_text or json.dumps({"id": f"sevt_{position}", "type": type_})
    return session_pb2.StreamFrame(position=position, type=type_, json=text.encode())


async def _authenticate(api_key: str) -> registry_pb2.AuthenticateResponse | None:
    if api_key != API_KEY:
        return None
    return registry_pb2.AuthenticateResponse(workspace_id="wrkspc_1", api_key_id="apikey_1")


def host_of(behaviour: Behaviour) -> Host:
    host = Host(Admission(SERVICE_KEY, _authenticate))
    served: list[tuple[Any, Any]] = [
        (agent_pb2_grpc.add_AgentServiceServicer_to_server, Agents),
        (environment_pb2_grpc.add_EnvironmentServiceServicer_to_server, Environments),
        (session_pb2_grpc.add_SessionServiceServicer_to_server, Sessions),
    ]
    for add, servicer in served:
        host.register(add, servicer(behaviour))
    return host


async def all_fine() -> dict[str, str | None]:
    return {"registry database": None, "ledger database": None}


def app_of(host: Host, *, ping_seconds: float = 10.0) -> Gateway:
    return create_app(lambda _: host.channel(), readiness=all_fine, ping_seconds=ping_seconds)


def client_of(app: Any, **headers: str) -> httpx2.AsyncClient:
    """A client that calls the application without a socket."""
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app),
        base_url="http://gateway",
        headers={"authorization": f"Bearer {API_KEY}"} | headers,
    )


def failing(reason: int, text: str = "why", **more: Any) -> Failure:
    return Failure(reason, text, **more)  # pyright: ignore[reportArgumentType]
