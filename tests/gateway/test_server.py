"""The server binds first, leaves signals alone, bounds what it takes and how long it stops."""

import asyncio
import json
import signal
import socket

import httpx2
import pytest

from gateway import server as gateway_server
from gateway.app import Gateway
from gateway.server import AddressError, Server, serve
from tests.gateway.support import API_KEY, SESSION, Behaviour, app_of, host_of


async def raw(server: Server, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    return answer


async def test_a_taken_port_is_a_clear_error(app: Gateway) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressError, match=f"127.0.0.1:{port}: .*COUNTERFOIL_PORT"):
            await serve(app, "127.0.0.1", port)


async def test_an_address_of_elsewhere_is_a_clear_error(app: Gateway) -> None:
    with pytest.raises(AddressError, match="COUNTERFOIL_HOST"):
        await serve(app, "192.0.2.1", 0)


async def test_the_port_is_free_again_after_stop_and_signals_were_left_alone(app: Gateway) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    first = await serve(app, "127.0.0.1", 0)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    await first.stop()
    second = await serve(app, "127.0.0.1", first.port)
    await second.stop()
    assert second.port == first.port


async def test_a_request_that_runs_may_finish_while_the_server_stops(behaviour: Behaviour) -> None:
    behaviour.release = asyncio.Event()
    server = await serve(app_of(host_of(behaviour)), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.port}/v1/sessions/{SESSION}"
    async with httpx2.AsyncClient(trust_env=False) as client:
        asking = asyncio.ensure_future(client.get(url, headers={"x-api-key": API_KEY}))
        await behaviour.subscribed.wait()
        stopping = asyncio.ensure_future(server.stop())
        await asyncio.sleep(0)
        behaviour.release.set()
        assert (await asking).status_code == 200
        await stopping


async def test_a_request_that_hangs_does_not_hold_the_stop(
    behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_server, "_STOP_SECONDS", 0.1)
    behaviour.release = asyncio.Event()
    server = await serve(app_of(host_of(behaviour)), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.port}/v1/sessions/{SESSION}"
    async with httpx2.AsyncClient(trust_env=False) as client:
        asking = asyncio.ensure_future(client.get(url, headers={"x-api-key": API_KEY}))
        await behaviour.subscribed.wait()
        async with asyncio.timeout(2):
            await server.stop()
        with pytest.raises(httpx2.TransportError):
            await asking


@pytest.mark.parametrize(
    "request_",
    [
        b"NONSENSE\r\n\r\n",
        b"GET /caf\xe9 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nbig: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /v1/agents HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_no_http_gets_our_error_body(server: Server, request_: bytes) -> None:
    head, _, body = (await raw(server, request_)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    found = json.loads(body)
    assert found["error"]["type"] == "invalid_request_error"
    assert f"request-id: {found['request_id']}".encode() in head


async def test_nothing_names_the_server_software(http: httpx2.AsyncClient) -> None:
    response = await http.get("/healthz")
    assert "server" not in response.headers


async def test_connections_neither_wait_for_acknowledgements_nor_for_dead_peers(
    server: Server,
) -> None:
    async with httpx2.AsyncClient(trust_env=False) as client:
        await client.get(f"http://127.0.0.1:{server.port}/healthz")
        (connection,) = server._server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            option = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert option == 30_000
