"""A running system and the client programs."""

import sys
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from tests.conformance.client import Client, Program
from tests.conformance.installs import DRIVERS, python_environment
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


def anthropic_client(python: str, kind: str) -> Generator[Client]:
    """The official Python SDK of an environment."""
    program = Program([python, str(DRIVERS / "anthropic_python.py"), kind], DRIVERS, {})
    yield Client(program, rest=True)
    program.stop()


__all__ = ["model", "pytest_runtest_makereport", "zygote"]
