"""TLS is made with the host of the URL, not with the address that was dialled."""

import asyncio
import ssl
from pathlib import Path

import pytest

from foundation.egress.errors import Reason
from foundation.trust import verifying
from tests.foundation.egress.sites import (
    PUBLIC,
    Call,
    Names,
    ask,
    failure,
    guarding,
    listening,
    site,
    within,
)
from tests.support.certificates import certificate


async def hello(call: Call) -> None:
    await call.answer("200 OK", b"hello")


def serving(path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def trusting(path: Path) -> ssl.SSLContext:
    context = verifying()
    context.load_verify_locations(path)
    return context


async def test_the_host_is_asked_for_and_verified(tmp_path: Path) -> None:
    path = certificate(tmp_path, "page.example")
    async with site(hello, serving(path)) as made:
        guard, network = guarding(made, Names(page_example=[PUBLIC]), tls=trusting(path))
        assert (await ask(guard, "https://page.example/")).body == b"hello"
        assert network.dialled == [(PUBLIC, 443)]
        assert made.server_names == ["page.example"]


async def test_an_address_is_verified_as_one(tmp_path: Path) -> None:
    path = certificate(tmp_path, PUBLIC)
    async with site(hello, serving(path)) as made:
        guard, _ = guarding(made, Names(), tls=trusting(path))
        assert (await ask(guard, f"https://{PUBLIC}/")).body == b"hello"
        assert made.server_names == [None]


@pytest.mark.parametrize(
    ("named", "days", "is_trusted"),
    [
        ("other.example", 1, True),
        (PUBLIC, 1, True),  # the address that is dialled is not the host
        ("page.example", -1, True),
        ("page.example", 1, False),
    ],
)
async def test_another_certificate_gets_no_request(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: str,
    days: int,
    is_trusted: bool,
) -> None:
    path = certificate(tmp_path, named, days=days)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    async with site(hello, serving(path)) as made:
        tls = trusting(path) if is_trusted else verifying()
        guard, _ = guarding(made, Names(page_example=[PUBLIC]), tls=tls)
        error = await failure(guard, "https://page.example/")
        assert (error.reason, error.is_sent) == (Reason.TLS, False)
        assert made.calls == []


async def test_a_server_without_tls_gets_no_request() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with listening(serve) as made:
        guard, _ = guarding(made, Names(page_example=[PUBLIC]))
        error = await failure(guard, "https://page.example/")
        assert (error.reason, error.is_sent) == (Reason.TLS, False)


async def test_a_handshake_that_never_ends_is_not_waited_for() -> None:
    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(serve) as made:
        guard, _ = guarding(made, Names(page_example=[PUBLIC]))
        error = await failure(guard, "https://page.example/", within(connect_seconds=0.2))
        assert (error.reason, error.is_sent) == (Reason.CONNECT_TIMEOUT, False)
