"""The embedded object store: private, lazy, gone with its process, back with the next one."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from foundation.objects import (
    EmbeddedObjects,
    Missing,
    ObjectsFailed,
    ObjectStore,
    StoreUnavailable,
)
from foundation.objects.seaweed import servers_on
from tests.support.processes import python_environment
from tests.support.waiting import eventually

WRITER = """
import asyncio, sys
from pathlib import Path
from foundation.objects import EmbeddedObjects, ObjectStore

async def main():
    server = EmbeddedObjects(Path(sys.argv[1]))
    store = ObjectStore(server.locate, server.settle)
    for number in range(100_000):
        await store.put(f"written/{number:06}", b"%d" % number * 1000)
        print(number, flush=True)

asyncio.run(main())
"""


def start_writer(folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(folder)]
    environment = python_environment()
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[EmbeddedObjects]:
    made = EmbeddedObjects(tmp_path / "objects")
    yield made
    await made.stop()
    assert servers_on(tmp_path / "objects") == []


@pytest.fixture
def store(server: EmbeddedObjects) -> ObjectStore:
    return ObjectStore(server.locate, server.settle)


async def test_it_starts_with_the_first_call_and_keeps_what_it_was_given(
    server: EmbeddedObjects, store: ObjectStore, tmp_path: Path
) -> None:
    folder = tmp_path / "objects"
    assert server.pid is None
    assert not folder.exists()
    await store.put("a/one", b"1")
    await store.put("a/two", b"2" * 6_000_000)
    await store.put("b/three", b"3")
    first = server.pid
    assert await store.get("a/two") == b"2" * 6_000_000
    assert await store.keys("a/", "", 10) == ["a/one", "a/two"]
    assert await store.keys("", "a/one", 1) == ["a/two"]
    await store.delete("a/one")
    await store.delete("a/one")
    with pytest.raises(Missing):
        await store.get("a/one")
    assert server.pid == first
    await server.stop()
    again = EmbeddedObjects(folder)
    try:
        assert await ObjectStore(again.locate, again.settle).get("b/three") == b"3"
    finally:
        await again.stop()


async def test_whatever_is_asked_first_is_answered(
    server: EmbeddedObjects, store: ObjectStore
) -> None:
    assert await store.keys("a/", "", 10) == []
    with pytest.raises(Missing):
        await store.get("a/one")
    await store.delete("a/one")


async def test_it_is_started_again_by_the_next_call_when_it_died(
    server: EmbeddedObjects, store: ObjectStore
) -> None:
    await store.put("a", b"1")
    first = server.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: _is(server.pid is None))
    # Callers that come together start one.
    assert await asyncio.gather(*(store.get("a") for _ in range(5))) == [b"1"] * 5
    assert server.pid not in (first, None)


async def _is(value: bool) -> bool:
    return value


async def test_after_kill_9_of_its_process_it_ends_and_every_answered_object_is_there(
    server: EmbeddedObjects, store: ObjectStore, tmp_path: Path
) -> None:
    folder = tmp_path / "objects"
    with start_writer(folder) as writer:
        assert writer.stdout is not None
        answered = [writer.stdout.readline() for _ in range(30)]
        assert servers_on(folder)
        writer.kill()
        answered += writer.stdout.readlines()
    complete = [int(line) for line in answered if line.endswith("\n")]
    assert len(complete) >= 30
    for number in complete:
        assert await store.get(f"written/{number:06}") == b"%d" % number * 1000


async def test_only_its_owner_and_loopback_reach_it(
    server: EmbeddedObjects, store: ObjectStore, tmp_path: Path
) -> None:
    await store.put("a", b"1")
    folder = tmp_path / "objects"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "credentials.json").stat().st_mode) == 0o600
    listening = {
        one.laddr.ip
        for one in psutil.Process(server.pid).net_connections("tcp")
        if one.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}
    endpoint = await server.locate()
    for secret in (endpoint.access_key, endpoint.secret_key):
        assert secret not in (folder / "seaweedfs.log").read_text()
        assert secret not in " ".join(psutil.Process(server.pid).cmdline())
    assert endpoint.secret_key not in repr(endpoint)


async def test_it_refuses_whoever_does_not_know_its_key(
    server: EmbeddedObjects, store: ObjectStore
) -> None:
    await store.put("a", b"1")
    stranger = ObjectStore.at(replace(await server.locate(), secret_key="guessed"))
    with pytest.raises(StoreUnavailable):
        await stranger.get("a")


async def test_nothing_stays_behind_in_the_folder_for_temporary_files(
    server: EmbeddedObjects, store: ObjectStore, tmp_path: Path
) -> None:
    await store.put("a", b"1")
    ports = json.loads((tmp_path / "objects" / "ports.json").read_text())

    def left() -> list[Path]:
        return [one for port in ports for one in Path("/tmp").glob(f"seaweedfs-*-{port}.sock")]

    assert left()
    await server.stop()
    assert left() == []


async def test_a_second_supervisor_is_refused(
    server: EmbeddedObjects, store: ObjectStore, tmp_path: Path
) -> None:
    await store.put("a", b"1")
    second = EmbeddedObjects(tmp_path / "objects")
    with pytest.raises(ObjectsFailed, match="another process"):
        await second.locate()
    await second.stop()
    assert await store.get("a") == b"1"


async def test_a_proxy_of_the_environment_is_not_asked(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    await store.put("a", b"1")
    assert await store.get("a") == b"1"
