"""Where schedules are played: one PostgreSQL, one stage, one loop for many examples."""

import asyncio
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast
from unittest.mock import patch

import structlog

from foundation.postgres import EmbeddedPostgres
from services.tools import execution
from tests.laws.doubled.clock import ExecutorClock, IdleLoop
from tests.laws.doubled.machine import Played, play
from tests.laws.doubled.schedule import Schedule
from tests.laws.doubled.stage import Stage
from tests.support.postgres import SessionPostgres, run_aside

_SERVICES = ("registry", "ledger", "transcript", "journal", "context")
_MEMORY = Path("/dev/shm")


class Theatre:
    """Plays schedules one after the other."""

    def __init__(self, runner: asyncio.Runner, stage: Stage) -> None:
        self._runner = runner
        self._stage = stage

    def play(self, schedule: Schedule) -> Played:
        """Play a schedule on a new session."""
        return self._runner.run(play(self._stage, schedule))


@contextmanager
def open_theatre() -> Generator[Theatre]:
    """Start everything, and stop it at the end of the block."""
    # No schedule kills PostgreSQL, so its files may live in memory.
    folder = _MEMORY if _MEMORY.is_dir() else None
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        with tempfile.TemporaryDirectory(prefix="counterfoil-tests-", dir=folder) as data:
            server = EmbeddedPostgres()
            dsn = run_aside(server.start(Path(data) / "postgres"))
            try:
                with asyncio.Runner(loop_factory=IdleLoop) as runner, _executors_clock(runner):
                    yield from _on_stage(runner, SessionPostgres(dsn, server))
            finally:
                run_aside(server.stop())
    finally:
        structlog.reset_defaults()


@contextmanager
def _executors_clock(runner: asyncio.Runner) -> Generator[None]:
    """Deadlines of executors pass with the time of schedules."""
    clock = ExecutorClock(cast(IdleLoop, runner.get_loop()))
    with patch.object(execution, "time", clock):
        yield


def _on_stage(runner: asyncio.Runner, postgres: SessionPostgres) -> Generator[Theatre]:
    database = postgres.database(*_SERVICES)
    stage = runner.run(Stage.open(runner.run(database.__aenter__())))
    try:
        yield Theatre(runner, stage)
    finally:
        runner.run(stage.close())
        runner.run(database.__aexit__(None, None, None))
