"""Puts processes together. The only place that knows every service."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar, cast

from foundation.settings import SERVICES, Settings
from foundation.storage import Database

if TYPE_CHECKING:
    from foundation.bootstrap import Kernel

Start = Callable[["Kernel"], Awaitable[None]]
Result = TypeVar("Result")

STATEFUL = tuple(name for name in SERVICES if name != "tools")
"""Services with a schema of their own; the tools service keeps nothing yet."""

RUNNER = "runner"


def starter(service: str) -> Start:
    """The `start` of a service (or of the runner), imported when it is needed."""
    module = importlib.import_module(f"services.{service}.service")
    return cast(Start, module.start)


def load() -> None:
    """Imports everything that an embedded deployment consists of, which takes a while."""
    for name in ("cli.front", "foundation.storage.migrate"):
        importlib.import_module(name)
    for service in (*SERVICES, RUNNER):
        starter(service)


async def migrate(settings: Settings, services: tuple[str, ...] = STATEFUL) -> list[str]:
    """Brings the schemas up to date; returns the services whose schema changed."""
    from foundation.storage.migrate import migrate as migrate_one
    from foundation.storage.migrate import outdated

    databases = {name: dsn for name in services if (dsn := settings.database_url_of(name))}
    behind = await together(outdated(name, dsn) for name, dsn in databases.items())
    changed: list[str] = []
    for (service, dsn), is_behind in zip(databases.items(), behind, strict=True):
        if is_behind and await migrate_one(service, dsn):
            changed.append(service)
    return changed


async def together(works: Iterable[Awaitable[Result]]) -> list[Result]:
    """The results of all; an error is raised when every one has ended, so that nothing goes on
    behind the caller's back."""
    found = await asyncio.gather(*works, return_exceptions=True)
    results: list[Result] = []
    for one in found:
        if isinstance(one, BaseException):
            raise one
        results.append(one)
    return results


async def readiness(kernel: "Kernel") -> dict[str, str | None]:
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
