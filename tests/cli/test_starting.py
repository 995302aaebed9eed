"""A start waits for nothing that it does not need, and lets nothing go on behind a failure."""

import asyncio
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from cli import composition
from cli.__main__ import RESERVED_MIB
from cli.embedded import running
from cli.main import app
from foundation.datafolder import DataFolder
from foundation.postgres.processes import servers_on
from foundation.settings import Settings
from tests.support.processes import python_environment


def imported_by(code: str) -> set[str]:
    """The top-level packages that a new Python has imported after `code`."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    command = [sys.executable, "-c", code]
    environment = python_environment()
    return set(subprocess.check_output(command, env=environment, text=True).split())


def none_of(names: Iterable[str], imported: set[str]) -> bool:
    return not imported & set(names)


def test_what_launches_postgresql_imports_little_else() -> None:
    imported = imported_by("import cli.main, cli.embedded")
    assert none_of(("gateway", "services", "uvicorn", "genai_prices"), imported)


def test_a_start_on_a_current_schema_imports_nothing_that_migrates() -> None:
    imported = imported_by("from cli import composition; composition.load()")
    assert "services" in imported
    assert none_of(("sqlalchemy", "alembic"), imported)


async def test_a_start_that_fails_while_postgresql_starts_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    def fails() -> None:
        raise OSError("metrics cannot be served")

    settings = Settings.model_validate({"data_dir": tmp_path / "data", "port": 0, "grpc_port": 0})
    with pytest.raises(OSError, match="metrics cannot be served"):
        async with running(settings, owned=fails):
            pass
    assert servers_on(tmp_path / "data" / "postgres" / "cluster") == []
    with DataFolder.open(tmp_path / "data"):
        pass


async def test_what_runs_together_has_ended_when_one_of_it_fails() -> None:
    ended: list[str] = []
    failed = asyncio.Event()

    async def fails() -> None:
        failed.set()
        raise OSError("no port")

    async def goes_on() -> None:
        await failed.wait()
        await asyncio.sleep(0)
        ended.append("the other")

    with pytest.raises(OSError, match="no port"):
        await composition.together([fails(), goes_on()])
    assert ended == ["the other"]


async def test_what_runs_together_answers_in_order() -> None:
    first_may_end = asyncio.Event()

    async def first() -> int:
        await first_may_end.wait()
        return 1

    async def second() -> int:
        first_may_end.set()
        return 2

    assert await composition.together([first(), second()]) == [1, 2]


def test_what_reserves_memory_is_a_command() -> None:
    commands = {one.callback.__name__ for one in app.registered_commands if one.callback}
    assert commands >= RESERVED_MIB.keys()
