"""Who has no key gets nothing from the embedded object store, at any of its ports."""

import http.client
import json
import re
import socket
import ssl
from collections.abc import AsyncGenerator
from pathlib import Path

import grpc
import pytest

from foundation.objects import EmbeddedObjects, ObjectStore
from foundation.objects.seaweed import PARTS
from tests.support.waiting import eventually

BODY = b"sealed bytes " * 100
PATH = "/buckets/counterfoil/a/one"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[EmbeddedObjects]:
    made = EmbeddedObjects(tmp_path / "objects")
    await made.locate()
    yield made
    await made.stop()


def ports(server: EmbeddedObjects) -> dict[str, tuple[int, int]]:
    """The ports of each part: HTTP, gRPC."""
    numbers = json.loads((server.folder / "ports.json").read_text())
    return dict(zip(PARTS, zip(numbers[::2], numbers[1::2], strict=True), strict=True))


def ask(port: int, method: str, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, b"other bytes" if method in ("PUT", "POST") else None)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def fids(folder: Path) -> set[str]:
    """Every name that a volume could have for what it holds: taken from its own index."""
    found = set[str]()
    for index in (folder / "data").glob("*.idx"):
        volume, raw = re.sub(r"\D", "", index.stem.rpartition("_")[2]), index.read_bytes()
        data = index.with_suffix(".dat").read_bytes()
        for at in range(0, len(raw) - 15, 16):
            key = raw[at : at + 8]
            offset = int.from_bytes(raw[at + 8 : at + 12]) * 8
            cookie = data[offset : offset + 4]
            found.add(f"{volume},{key.hex().lstrip('0')}{cookie.hex()}")
    return found


ASKED = [
    *(("filer", method, PATH) for method in ("GET", "PUT", "POST", "DELETE")),
    ("filer", "GET", "/buckets/"),
    ("filer", "DELETE", "/buckets/counterfoil?recursive=true"),
    ("master", "GET", "/dir/assign"),
    ("master", "GET", "/dir/lookup?volumeId=1"),
    ("master", "GET", "/dir/lookup?fileId=1,01637037d6"),
    ("master", "GET", "/col/delete?collection=counterfoil"),
    ("master", "POST", "/vol/vacuum"),
    ("master", "POST", "/submit"),
    ("s3", "GET", "/counterfoil/a/one"),
    ("s3", "PUT", "/counterfoil/a/one"),
    ("s3", "DELETE", "/counterfoil/a/one"),
    ("s3", "DELETE", "/counterfoil"),
    ("admin", "GET", "/"),
]


async def test_nobody_reads_writes_or_deletes_without_a_key(server: EmbeddedObjects) -> None:
    store = ObjectStore(server.locate, server.settle)
    await store.put("a/one", BODY)
    at = ports(server)
    for part in {part for part, _, _ in ASKED}:
        # Parts listen one after the other, and bytes are taken before the last one does.
        await eventually(lambda part=part: _is_open(at[part][0]))
    for part, method, path in ASKED:
        status, answer = ask(at[part][0], method, path)
        assert status in (401, 403, 404, 405), (part, method, path, answer)
        assert BODY not in answer
    names = fids(server.folder)
    assert names
    for name in names:
        for method in ("GET", "PUT", "POST", "DELETE"):
            status, answer = ask(at["volume"][0], method, f"/{name}")
            assert status == 401, (method, name, answer)
    assert await store.get("a/one") == BODY
    assert await store.keys("", "", 10) == ["a/one", "started"]


async def test_grpc_takes_only_who_holds_the_certificate(server: EmbeddedObjects) -> None:
    for name in ("grpc.pem", "grpc-key.pem", "credentials.json"):
        assert ((server.folder / name).stat().st_mode & 0o777) == 0o600
    trusted = ssl.create_default_context(cafile=str(server.folder / "grpc.pem"))
    trusted.check_hostname = False
    for part, (_, port) in ports(server).items():
        if not _listens(port):
            continue
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary("/filer_pb.SeaweedFiler/GetFilerConfiguration")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(b"", timeout=10)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE, part
        with pytest.raises((ssl.SSLError, ConnectionError)):
            _greet(port, trusted)


def _greet(port: int, trusted: ssl.SSLContext) -> None:
    """Begin HTTP/2 over TLS, with no certificate to show: the server ends the connection."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        trusted.wrap_socket(plain) as made,
    ):
        made.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        if not made.recv(1):
            raise ConnectionError


async def _is_open(port: int) -> bool:
    return _listens(port)


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
