"""Brings the schema of one service to its newest version.

A service declares its tables in `services/<name>/schema.py`, with `MetaData(schema="<name>")`, and
its versions in `services/<name>/migrations/versions/*.py`: ordinary Alembic revision modules
(`revision`, `down_revision`, `upgrade()`), nothing else. The version table is in the service's
schema, so that each authority can move to a database of its own.
"""

import ast
import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

from foundation import failpoints
from foundation.storage.connect import DRIVER_ERRORS, Connection, raise_translated
from foundation.storage.errors import ConfigurationError, Unavailable

if TYPE_CHECKING:
    import sqlalchemy


def versions_folder(service: str) -> Path:
    """`services/<name>/migrations/versions`; ConfigurationError when the service has none."""
    try:
        spec = importlib.util.find_spec(f"services.{service}")
    except ModuleNotFoundError:
        spec = None
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        folder = Path(location) / "migrations" / "versions"
        if folder.is_dir():
            return folder
    raise ConfigurationError(f"service {service!r} has no migrations/versions")


@cache
def head(versions: Path) -> str:
    """The one revision in a folder of versions that no other follows. Reads, imports nothing."""
    revisions: set[str] = set()
    followed: set[str] = set()
    for path in sorted(versions.glob("*.py")):
        names = _constants(path)
        if "revision" in names:
            revisions.add(names["revision"])
            followed.add(names.get("down_revision", ""))
    heads = revisions - followed
    if len(heads) != 1:
        raise ConfigurationError(f"{versions} must have one newest revision, has {sorted(heads)}")
    return heads.pop()


async def current(service: str, dsn: str) -> str | None:
    """The revision that the database has, None when the service was never migrated there.

    Raises Unavailable.
    """
    connection = await _connect(dsn, search_path=service)
    try:
        revision: str | None = await connection.fetchval("SELECT version_num FROM alembic_version")
    except asyncpg.UndefinedTableError:
        return None
    except DRIVER_ERRORS as error:
        raise_translated(error, connection)
    finally:
        await connection.close()
    return revision


async def outdated(service: str, dsn: str) -> bool:
    """Whether `migrate` has something to do. Raises Unavailable."""
    return await current(service, dsn) != head(versions_folder(service))


async def migrate(service: str, dsn: str) -> bool:
    """Upgrade the service's schema; True when there was something to do.

    All steps are one transaction, under a lock that makes simultaneous callers take turns. Hits the
    failpoints `storage.migrate.before` and `.after`. Raises Unavailable.
    """
    if not await outdated(service, dsn):
        return False
    return await _upgrade(service, dsn, versions_folder(service))


async def _connect(dsn: str, search_path: str = "public") -> Connection:
    settings = {"timezone": "UTC", "search_path": f'"{search_path}"'}
    try:
        return await asyncpg.connect(dsn, timeout=10, server_settings=settings)
    except (OSError, TimeoutError, asyncpg.PostgresConnectionError) as error:
        raise Unavailable(f"cannot connect to the database: {error}") from error
    except (asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError) as error:
        raise Unavailable(f"cannot connect to the database: {error}") from error


async def _upgrade(service: str, dsn: str, versions: Path) -> bool:
    # Alembic takes 0.3 s to import, which a process that is up to date does not pay.
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: _connect(dsn), poolclass=NullPool
    )
    try:
        async with engine.connect() as connection, connection.begin():
            await connection.execute(
                text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"),
                {"name": f"counterfoil.migrate.{service}"},
            )
            await connection.execute(text(f'CREATE SCHEMA IF NOT EXISTS "{service}"'))
            changed = await connection.run_sync(_run_versions, service, versions)
            await failpoints.hit("storage.migrate.before")
    finally:
        await engine.dispose()
    await failpoints.hit("storage.migrate.after")
    return changed


def _run_versions(connection: "sqlalchemy.Connection", service: str, versions: Path) -> bool:
    from alembic import command
    from alembic.config import Config
    from alembic.migration import MigrationContext

    state = MigrationContext.configure(connection, opts={"version_table_schema": service})
    if state.get_current_revision() == head(versions):
        return False  # somebody else was faster
    config = Config(attributes={"connection": connection, "service": service})
    config.set_main_option("script_location", _escaped(Path(__file__).with_name("alembic")))
    config.set_main_option("version_locations", _escaped(versions))
    config.set_main_option("path_separator", "newline")
    command.upgrade(config, "head")
    return True


def _escaped(path: Path) -> str:
    return str(path).replace("%", "%%")


def _constants(path: Path) -> dict[str, str]:
    """Module-level assignments of a string to a name."""
    found: dict[str, str] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Assign):
            targets = node.targets
        else:
            continue
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for target in targets:
                if isinstance(target, ast.Name):
                    found[target.id] = node.value.value
    return found
