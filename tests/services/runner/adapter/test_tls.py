"""A provider over TLS gets a request only if its certificate is trusted and names the host."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.runner.adapter import connections
from tests.services.runner.adapter.peers import Connection, Peer, adapter, ask, failure, peer, told
from tests.services.runner.adapter.support import BEGIN, END
from tests.services.runner.adapter.test_requests_are_exact import SSE, events, http
from tests.support.certificates import certificate


@asynccontextmanager
async def provider(path: Path) -> AsyncGenerator[Peer]:
    async def act(connection: Connection) -> None:
        for _ in range(3):
            await connection.request()
            await connection.send(http(events(BEGIN, END), SSE))
        await connection.gone()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    async with peer(act, context) as made:
        yield made


def trusting(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    def context() -> ssl.SSLContext:
        made = original()
        made.load_verify_locations(path)
        return made

    original = connections.verifying
    monkeypatch.setattr(connections, "verifying", context)


async def test_a_trusted_provider_is_asked_again_on_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = certificate(tmp_path, "127.0.0.1")
    trusting(monkeypatch, path)
    async with provider(path) as made, adapter(made.url) as asking:
        for _ in range(3):
            assert (await ask(asking)).blocks == ()
    assert (made.connections, made.requests) == (1, 3)


async def test_an_untrusted_provider_gets_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = certificate(tmp_path, "127.0.0.1")
    # The environment has no say in who is trusted.
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    async with provider(path) as made:
        assert told(await failure(made.url)) == ("unreachable", True)
    assert made.requests == 0


async def test_a_provider_with_another_s_certificate_gets_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = certificate(tmp_path, "127.0.0.2")
    trusting(monkeypatch, path)
    async with provider(path) as made:
        assert told(await failure(made.url)) == ("unreachable", True)
    assert made.requests == 0
