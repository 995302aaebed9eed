"""A split deployment from its commands alone: migrate, serve each service, a runner, a gateway."""

import asyncio
import subprocess
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import anthropic
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from cli.composition import STATEFUL
from foundation.settings import SERVICES
from foundation.storage import SealRing
from tests.cli.support import KEY, command, refused
from tests.offline_model.support import running as running_model
from tests.support.postgres import SessionPostgres
from tests.support.processes import python_environment
from tests.support.system import free_ports

HOST = "127.0.0.1"


@contextmanager
def process(words: Sequence[str], environment: dict[str, str], log: Path) -> Generator[str]:
    """A command that stays; yields the line that says that it is ready."""
    with (
        log.open("w") as output,
        subprocess.Popen(
            command(*words), env=environment, stdout=subprocess.PIPE, stderr=output, text=True
        ) as started,
    ):
        try:
            assert started.stdout is not None
            line = started.stdout.readline().strip()
            assert " is ready at " in line, log.read_text()[-4000:]
            yield line
            started.terminate()
            assert started.wait(20) == 0, log.read_text()[-4000:]
        finally:
            started.kill()


def settings(folder: Path, dsn: str, model_url: str, ports: dict[str, int]) -> dict[str, str]:
    """What an operator puts into the environment of every process."""
    SealRing.generate(folder / "seal_keys.json")
    key = folder / "service_key"
    key.write_text("a-random-service-credential-of-this-test-0123456789")
    return python_environment(
        COUNTERFOIL_SEAL_KEYS_FILE=str(folder / "seal_keys.json"),
        COUNTERFOIL_SERVICE_KEY_FILE=str(key),
        COUNTERFOIL_MODEL_BASE_URL=model_url,
        COUNTERFOIL_MODEL_API_KEY="offline-key",
        COUNTERFOIL_PORT=str(ports["gateway"]),
        COUNTERFOIL_S3_ENDPOINT="http://127.0.0.1:9",
        **{f"COUNTERFOIL_{one.upper()}_DATABASE_URL": dsn for one in STATEFUL},
        **{f"COUNTERFOIL_{one.upper()}_ADDRESS": f"{HOST}:{ports[one]}" for one in SERVICES},
    )


async def test_the_commands_make_a_working_deployment(
    postgres: SessionPostgres, tmp_path: Path
) -> None:
    names: list[str] = [*SERVICES, "gateway"]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    async with postgres.database() as dsn:
        with running_model() as model, ExitStack() as stack:
            environment = settings(tmp_path, dsn, model.url, ports)
            migrated = await finished(environment, "migrate")
            assert all(service in migrated for service in STATEFUL)
            for service in SERVICES:
                own = {**environment, "COUNTERFOIL_GRPC_PORT": str(ports[service])}
                log = tmp_path / f"{service}.log"
                stack.enter_context(process(("serve", service), own, log))
            for name in ("runner", "gateway"):
                stack.enter_context(process((name,), environment, tmp_path / f"{name}.log"))
            for service in SERVICES:
                await check_health_and_reflection(f"{HOST}:{ports[service]}")
            session = await asyncio.to_thread(talk, f"http://{HOST}:{ports['gateway']}")
            assert "Everything holds." in await finished(environment, "verify", session)


async def finished(environment: dict[str, str], *words: str) -> str:
    """A command that ends by itself, and well; what it printed."""
    ended = await asyncio.to_thread(
        subprocess.run, command(*words), env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


async def check_health_and_reflection(address: str) -> None:
    """Both need no credential."""
    async with grpc.aio.insecure_channel(address) as channel:
        checker: Any = health_pb2_grpc.HealthStub(channel)
        health = await checker.Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        # Their types know synchronous channels only.
        reflector: Any = reflection_pb2_grpc.ServerReflectionStub(cast(Any, channel))
        async for answer in reflector.ServerReflectionInfo(iter([request])):
            listed = [service.name for service in answer.list_services_response.service]
            assert any(name.startswith("counterfoil.") for name in listed)


def talk(url: str) -> str:
    """One turn with the official client; the session's id."""
    client = anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0)
    agent = client.beta.agents.create(name="split", model="any")
    environment = client.beta.environments.create(name="split")
    session = client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
    events = client.beta.sessions.events
    said: list[str] = []
    with events.stream(session.id) as stream:
        content = [{"type": "text", "text": "hello"}]
        message = {"type": "user.message", "content": content}
        events.send(session.id, events=[message])  # pyright: ignore[reportArgumentType]
        for event in stream:
            if event.type == "agent.message":
                said += [block.text for block in event.content if block.type == "text"]
            if event.type == "session.status_idle":
                break
    assert said
    client.close()
    return session.id


@pytest.mark.parametrize(
    ("words", "variable"),
    [
        (("serve", "ledger"), "COUNTERFOIL_SEAL_KEYS_FILE"),
        (("runner",), "COUNTERFOIL_MODEL_BASE_URL"),
        (("gateway",), "COUNTERFOIL_SERVICE_KEY_FILE"),
        (("migrate",), "COUNTERFOIL_<SERVICE>_DATABASE_URL"),
        (("serve", "nothing"), "registry"),
    ],
)
def test_what_is_missing_is_named(words: Sequence[str], variable: str, tmp_path: Path) -> None:
    done = refused(tmp_path, *words)
    assert done.returncode in (1, 2)
    assert variable in done.stderr
    assert "Traceback" not in done.stderr
