"""A whole Counterfoil inside the test's own process, for what only shows from inside."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import SecretStr

from cli.composition import STATEFUL
from cli.embedded import Embedded, running
from foundation.settings import Settings
from tests.support.postgres import SessionPostgres


@asynccontextmanager
async def inside(
    postgres: SessionPostgres, model_url: str, **settings: object
) -> AsyncGenerator[tuple[Embedded, str]]:
    """The running system and the DSN of the database that all its services share."""
    with tempfile.TemporaryDirectory(prefix="cf-") as folder:
        async with postgres.database(*STATEFUL) as dsn:
            chosen: dict[str, object] = {
                "port": 0,
                "grpc_port": 0,
                "data_dir": Path(folder) / "data",
                "model_base_url": model_url,
                "model_api_key": SecretStr("offline-key"),
                "model_profile": "offline",
                **{f"{service}_database_url": SecretStr(dsn) for service in STATEFUL},
                **settings,
            }
            async with running(Settings.model_validate(chosen)) as embedded:
                yield embedded, dsn
