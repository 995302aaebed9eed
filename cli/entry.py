"""How every command begins and ends: its settings, its event loop, its errors."""

from collections.abc import Coroutine, Generator
from contextlib import contextmanager, suppress
from typing import Any

import typer
import uvloop
from pydantic import ValidationError

from cli import logs
from foundation.datafolder import FolderInUse
from foundation.errors import Failure
from foundation.postgres import PostgresFailed
from foundation.settings import Settings
from foundation.storage import ConfigurationError

_EXPECTED = (FolderInUse, PostgresFailed, ConfigurationError, Failure, OSError, ValueError)


def read_settings() -> Settings:
    """Settings from the environment; ends the process with the field's name when one is wrong."""
    try:
        return Settings.model_validate({})
    except ValidationError as error:
        for problem in error.errors():
            name = "_".join(str(part) for part in problem["loc"]).upper()
            typer.echo(f"COUNTERFOIL_{name}: {problem['msg']}", err=True)
        raise typer.Exit(2) from error


def main_loop(work: Coroutine[Any, Any, None]) -> None:
    """Runs a command's coroutine; expected errors become one line and exit code 1."""
    logs.configure()
    with one_line_errors(), suppress(KeyboardInterrupt):
        uvloop.run(work)


@contextmanager
def one_line_errors() -> Generator[None]:
    """Expected errors become one line and exit code 1."""
    try:
        yield
    except _EXPECTED as error:
        typer.echo(f"counterfoil: {error}", err=True)
        raise typer.Exit(1) from error
