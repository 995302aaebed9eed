"""A provider over TLS gets a request only if its certificate is trusted and names the host."""

import datetime
import ipaddress
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from services.runner.adapter import connections
from tests.services.runner.adapter.peers import Connection, Peer, adapter, ask, failure, peer, told
from tests.services.runner.adapter.support import BEGIN, END
from tests.services.runner.adapter.test_requests_are_exact import SSE, events, http


def certificate(folder: Path, address: str) -> Path:
    """A key with a certificate that it signed itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "provider")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), False
        )
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{address}.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


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


def test_a_machine_without_certificates_trusts_the_usual_authorities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = ssl.DefaultVerifyPaths("", "", "", str(tmp_path / "no"), "", str(tmp_path))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nothing)
    assert connections.verifying().cert_store_stats()["x509_ca"] > 50
