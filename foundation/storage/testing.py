"""What a service's tests ask about its schema and its SQL."""

import re
from types import ModuleType

import asyncpg
from sqlalchemy import Connection as SyncConnection
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from foundation.storage.connect import Connection

_SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|MERGE|WITH|VALUES|LOCK)\b", re.IGNORECASE)


async def assert_schema_matches(service: str, metadata: MetaData, dsn: str) -> None:
    """Fail unless the migrated database has exactly the tables that `schema.py` declares."""

    async def connect() -> Connection:
        return await asyncpg.connect(dsn)

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
    async with engine.connect() as connection:
        differences = await connection.run_sync(_differences, service, metadata)
    await engine.dispose()
    assert not differences, "schema.py and the migrations differ:\n" + "\n".join(differences)


async def assert_sql_prepares(module: ModuleType, dsn: str) -> int:
    """Fail unless every SQL string constant of `module` can be prepared; returns how many.

    A constant is a module-level string, or one in a module-level tuple, list or dict, that begins
    with a statement's keyword; a comment may stand before it.
    """
    connection = await asyncpg.connect(dsn)
    failures: list[str] = []
    statements = sql_constants(module)
    try:
        for name, sql in statements.items():
            try:
                await connection.prepare(sql)
            except asyncpg.PostgresError as error:
                failures.append(f"{module.__name__}.{name}: {error}")
    finally:
        await connection.close()
    assert not failures, "\n".join(failures)
    return len(statements)


def sql_constants(module: ModuleType) -> dict[str, str]:
    """The SQL string constants of a module by name."""
    found: dict[str, str] = {}
    for name, value in vars(module).items():
        if not name.startswith("__"):
            found.update(_statements(name, value))
    return found


def _statements(name: str, value: object) -> dict[str, str]:
    if isinstance(value, str):
        bare = re.sub(r"--[^\n]*\n", "", value)
        return {name: value} if _SQL.match(bare) else {}
    members: list[tuple[object, object]] = []
    if isinstance(value, dict):
        members = list(value.items())  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, (tuple, list)):
        members = list(enumerate(value))  # pyright: ignore[reportUnknownArgumentType]
    found: dict[str, str] = {}
    for key, member in members:
        found.update(_statements(f"{name}[{key!r}]", member))
    return found


def _differences(connection: SyncConnection, service: str, metadata: MetaData) -> list[str]:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    def include_name(name: str | None, kind: str, _parents: object) -> bool:
        return name == service if kind == "schema" else True

    context = MigrationContext.configure(
        connection,
        opts={
            "target_metadata": metadata,
            "include_schemas": True,
            "include_name": include_name,
            "version_table_schema": service,
            "compare_type": True,
            "compare_server_default": True,
        },
    )
    return [repr(difference) for difference in compare_metadata(context, metadata)]
