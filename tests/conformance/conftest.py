"""A running system and the client programs."""

import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.client import Client, Program
from tests.conformance.installs import (
    DRIVERS,
    REPO,
    contracts,
    go_driver,
    node_folder,
    python_environment,
)
from tests.support.postgres import SessionPostgres
from tests.support.system import System, system_of
from tests.support.system_fixtures import model, pytest_runtest_makereport, zygote


@pytest.fixture
async def system(zygote: Any, model: Any, postgres: SessionPostgres) -> AsyncGenerator[System]:
    """A running embedded system, as `make run` starts it."""
    async with system_of("embedded", zygote, model, postgres) as made:
        await made.start()
        yield made


@pytest.fixture(scope="session")
def anthropic_sync() -> Generator[Client]:
    """The newest official Python SDK."""
    yield from anthropic_client(sys.executable, "sync")


@pytest.fixture(scope="session")
def anthropic_async() -> Generator[Client]:
    """The newest official Python SDK, asynchronous."""
    yield from anthropic_client(sys.executable, "async")


@pytest.fixture(scope="session")
def anthropic_0_94_sync() -> Generator[Client]:
    """The oldest official Python SDK that can stream these events."""
    yield from anthropic_client(str(python_environment("anthropic_0_94")), "sync")


@pytest.fixture(scope="session")
def anthropic_0_94_async() -> Generator[Client]:
    """The same, asynchronous."""
    yield from anthropic_client(str(python_environment("anthropic_0_94")), "async")


@pytest.fixture(scope="session")
def counterfoil_python() -> Generator[Client]:
    """Our own client for Python."""
    command = [sys.executable, str(DRIVERS / "counterfoil_python.py")]
    yield from client(command, DRIVERS, rest=False, PYTHONPATH=str(REPO / "clients" / "python"))


@pytest.fixture(scope="session")
def anthropic_node() -> Generator[Client]:
    """The newest official SDK for JavaScript."""
    folder = node_folder()
    yield from client(["node", "anthropic_sdk.mjs"], folder, rest=True)


@pytest.fixture(scope="session")
def grpc_js() -> Generator[Client]:
    """gRPC for JavaScript."""
    folder = node_folder()
    yield from client(["node", "grpc_js.mjs", str(contracts())], folder, rest=False)


@pytest.fixture(scope="session")
def grpc_go() -> Generator[Client]:
    """gRPC for Go."""
    yield from client([str(go_driver())], DRIVERS, rest=False)


def anthropic_client(python: str, kind: str) -> Generator[Client]:
    """The official Python SDK of an environment."""
    command = [python, str(DRIVERS / "anthropic_python.py"), kind]
    yield from client(command, DRIVERS, rest=True)


def client(
    command: Sequence[str], folder: Path, *, rest: bool, **environment: str
) -> Generator[Client]:
    """A client for the whole run of the tests."""
    program = Program(command, folder, environment)
    yield Client(program, rest=rest)
    program.stop()


__all__ = ["model", "pytest_runtest_makereport", "zygote"]
