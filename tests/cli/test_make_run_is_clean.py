"""`counterfoil run`: one owner a folder, nothing left behind, and it continues where it was."""

import asyncio
import os
import signal
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from foundation.settings import DEVELOPMENT_KEY
from tests.cli.support import Run, gone, one_line, post, refused, running
from tests.offline_model.support import running as model_running
from tests.support.model import Model, script

QUIT_SECONDS = 10


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One data folder for the module: PostgreSQL is set up once."""
    return tmp_path_factory.mktemp("run") / "data"


@pytest.fixture
def run(data: Path) -> Generator[Run]:
    with running(data) as started:
        yield started


def new_session(client: httpx2.Client) -> str:
    agent = post(client, "/v1/agents", {"model": "claude-sonnet-4-5", "name": "run"})
    name = f"run {os.urandom(4).hex()}"
    environment = post(client, "/v1/environments", {"name": name})
    body = {"agent": agent["id"], "environment_id": environment["id"]}
    return post(client, "/v1/sessions", body)["id"]


def send(client: httpx2.Client, session: str, text: str) -> None:
    event = {"type": "user.message", "content": [{"type": "text", "text": text}]}
    post(client, f"/v1/sessions/{session}/events", {"events": [event]})


def history(client: httpx2.Client, session: str) -> list[dict[str, Any]]:
    response = client.get(f"/v1/sessions/{session}/events")
    assert response.status_code == 200, response.text
    return response.json()["data"]


def nobody_listens(ports: list[int]) -> bool:
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def names(processes: list[psutil.Process]) -> str:
    return " ".join(" ".join(process.cmdline()) for process in processes)


def test_the_banner_says_what_one_needs(run: Run, data: Path) -> None:
    assert run.banner["API key"] == DEVELOPMENT_KEY
    assert run.banner["data"] == str(data)
    assert "COUNTERFOIL_MODEL_BASE_URL" in run.banner["model"]
    with run.http() as client:
        assert client.get("/readyz").json() == {"status": "ready"}
    assert not {"-1", "0"} & {str(port) for port in run.ports}


def test_a_second_start_on_the_folder_is_refused(run: Run, data: Path) -> None:
    done = refused(data)
    assert done.returncode == 1
    line = one_line(done)
    assert str(data) in line
    assert f"in use by process {run.process.pid}" in line
    assert "COUNTERFOIL_DATA_DIR" in line
    with run.http() as client:  # and the first one did not notice
        assert client.get("/readyz").status_code == 200


@pytest.mark.full
def test_a_taken_port_is_named_and_nothing_is_left(run: Run, tmp_path: Path) -> None:
    rest, grpc = run.ports
    for name, port in (("COUNTERFOIL_PORT", rest), ("COUNTERFOIL_GRPC_PORT", grpc)):
        done = refused(tmp_path / "data", **{name: str(port)})
        assert done.returncode == 1
        # gRPC's core adds lines of its own.
        line = done.stderr.splitlines()[-1]
        assert line.startswith("counterfoil: ")
        assert str(port) in line
        assert "Traceback" not in done.stderr
    left = [one for one in psutil.process_iter() if str(tmp_path) in " ".join(_cmdline(one))]
    assert not left


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_ctrl_c_ends_everything_with_code_0(data: Path) -> None:
    with running(data) as run:
        children = run.children
        assert "offline_model" in names(children)
        assert "postgres" in names(children)
        with run.http() as client:
            session = new_session(client)
            # An open stream must not hold it up.
            with client.stream("GET", f"/v1/sessions/{session}/events/stream") as stream:
                code, seconds = run.interrupt()
                assert b"".join(stream.iter_bytes()) == b""
    assert code == 0
    assert seconds < QUIT_SECONDS
    assert gone(children, 0)
    assert nobody_listens(run.ports)
    errors = [line for line in run.log.read_text().splitlines() if '"level": "error"' in line]
    assert not errors


@pytest.mark.full
def test_ctrl_c_of_the_whole_terminal_ends_everything_with_code_0(data: Path) -> None:
    """A terminal signals every process of the group, PostgreSQL and the model too."""
    with running(data) as run:
        children = run.children
        for process in children:
            if os.getpgid(process.pid) == os.getpgid(run.process.pid):
                process.send_signal(signal.SIGINT)
        code, seconds = run.interrupt()
    assert code == 0
    assert seconds < QUIT_SECONDS
    assert gone(children, 0)


@pytest.mark.full
def test_kill_9_of_the_main_process_alone_leaves_nothing(data: Path) -> None:
    with running(data) as run:
        children = run.children
        assert len(children) >= 2
        with run.http() as client:
            session = new_session(client)
            send(client, session, "hello")
        run.process.kill()
        run.process.wait()
        assert gone(children)
        assert nobody_listens(run.ports)
    with running(data) as again, again.http() as client:
        said = [one for one in history(client, session) if one["type"] == "user.message"]
        assert [one["content"][0]["text"] for one in said] == ["hello"]


@pytest.mark.full
def test_starting_again_continues_where_it_was(data: Path) -> None:
    with model_running() as server:
        model = Model(server.url)
        settings = {
            "COUNTERFOIL_MODEL_BASE_URL": model.url,
            "COUNTERFOIL_MODEL_API_KEY": "offline-key",
            "COUNTERFOIL_MODEL_PROFILE": "offline",
        }
        with running(data, **settings) as run, run.http() as client:
            old = new_session(client)
            send(client, old, script({"content": ["first"], "hold": "gate"}))
            send(client, old, "second")
            asyncio.run(model.held("gate"))
            code, seconds = run.interrupt()
            assert code == 0
            assert seconds < QUIT_SECONDS
        asyncio.run(model.release("gate"))
        with running(data, **settings) as run, run.http() as client:
            wait_for_idle(client, old)
            events = history(client, old)
    said = [event["content"][0]["text"] for event in events if event["type"] == "agent.message"]
    assert said[0] == "first"
    assert "second" in said[1]
    assert len(said) == 2
    assert [event["type"] for event in events].count("session.status_idle") == 1


def wait_for_idle(client: httpx2.Client, session: str) -> None:
    """Opens the stream, and reads it unless the list already ends with an idle."""
    with client.stream("GET", f"/v1/sessions/{session}/events/stream") as stream:
        if history(client, session)[-1]["type"] == "session.status_idle":
            return
        for line in stream.iter_lines():
            if line == "event: session.status_idle":
                return


def test_the_published_key_is_refused_beyond_loopback(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        done = refused(tmp_path / "data", COUNTERFOIL_HOST=host)
        assert done.returncode == 1
        assert "COUNTERFOIL_API_KEY is the well-known development key" in one_line(done)
    assert not (tmp_path / "data").exists()


@pytest.mark.full
def test_a_key_of_ones_own_is_not_printed(data: Path) -> None:
    with running(data, COUNTERFOIL_API_KEY="a-key-of-ones-own") as run:
        assert "a-key-of-ones-own" not in str(run.banner)
        assert "COUNTERFOIL_API_KEY" in run.banner["API key"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COUNTERFOIL_PORT", "http"),
        ("COUNTERFOIL_MODEL_AUTH", "basic"),
        ("COUNTERFOIL_RUNNER_CAPACITY", "0"),
        ("COUNTERFOIL_LOG_LEVEL", "loud"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, name: str, value: str) -> None:
    done = refused(tmp_path / "data", **{name: value})
    assert done.returncode == 2
    assert name in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_key_ring_is_named(tmp_path: Path) -> None:
    ring = tmp_path / "ring.json"
    ring.write_text('{"active": "k1", "keys": {"k1": "c2hvcnQ="}}')
    ring.chmod(0o600)
    done = refused(tmp_path / "data", COUNTERFOIL_SEAL_KEYS_FILE=str(ring))
    assert done.returncode == 1
    assert "must have 32 bytes" in one_line(done)
    assert "c2hvcnQ" not in done.stderr


@pytest.mark.full
def test_a_collector_that_is_away_holds_nothing_up(data: Path) -> None:
    with running(data, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9") as run:
        with run.http() as client:
            send(client, new_session(client), "hello")
        code, seconds = run.interrupt()
    assert code == 0
    assert seconds < QUIT_SECONDS
