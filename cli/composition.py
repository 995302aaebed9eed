"""Puts processes together. The only place that knows every service."""

import importlib
from collections.abc import Awaitable, Callable
from typing import cast

from foundation.bootstrap import Kernel
from foundation.settings import SERVICES, Settings
from foundation.storage import Database

Start = Callable[[Kernel], Awaitable[None]]

STATEFUL = tuple(name for name in SERVICES if name != "tools")
"""Services with a schema of their own; the tools service keeps nothing yet."""

RUNNER = "runner"


def starter(service: str) -> Start:
    """The `start` of a service (or of the runner), imported when it is needed."""
    module = importlib.import_module(f"services.{service}.service")
    return cast(Start, module.start)


async def migrate(settings: Settings, services: tuple[str, ...] = STATEFUL) -> list[str]:
    """Brings the schemas up to date; returns the services whose schema changed."""
    from foundation.storage.migrate import migrate as migrate_one

    changed: list[str] = []
    for service in services:
        dsn = settings.database_url_of(service)
        if dsn and await migrate_one(service, dsn):
            changed.append(service)
    return changed


async def readiness(kernel: Kernel) -> dict[str, str | None]:
    """What this process needs, by name: None when it works, else what is wrong."""
    found: dict[str, str | None] = {}
    for service, database in kernel.databases.items():
        found[f"{service} database"] = await _try(database)
    return found


async def _try(database: Database) -> str | None:
    try:
        await database.fetchval("SELECT 1")
    except Exception as error:
        return type(error).__name__
    return None
