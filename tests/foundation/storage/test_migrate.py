"""Migrations: one transaction, one at a time, exactly what `schema.py` declares."""

import asyncio
import sys
from pathlib import Path
from types import ModuleType

import pytest
from sqlalchemy import BigInteger, Column, MetaData, Table, Text

import services
from foundation import failpoints
from foundation.storage import ConfigurationError
from foundation.storage.migrate import current, head, migrate, outdated, versions_folder
from foundation.storage.testing import assert_schema_matches, assert_sql_prepares, sql_constants
from tests.support.processes import python_environment

VERSION = """
from alembic import op

revision = "{revision}"
down_revision = {follows!r}


def upgrade() -> None:
    {body}
"""

FIRST = "op.execute('CREATE TABLE sample.items (id bigint PRIMARY KEY, name text NOT NULL)')"
SECOND = "op.execute('ALTER TABLE sample.items ADD COLUMN note text')"


class Sample:
    """A service made of files, so that a test can give it more versions."""

    def __init__(self, folder: Path) -> None:
        self.versions = folder / "sample" / "migrations" / "versions"
        self.versions.mkdir(parents=True)
        (folder / "sample" / "__init__.py").touch()

    def add(self, revision: str, follows: str | None, body: str) -> None:
        text = VERSION.format(revision=revision, follows=follows, body=body)
        (self.versions / f"{revision}_sample.py").write_text(text)
        head.cache_clear()


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    monkeypatch.setattr(services, "__path__", [*services.__path__, str(tmp_path)])
    made = Sample(tmp_path)
    made.add("0001", None, FIRST)
    return made


def declared(*extra: Column[str]) -> MetaData:
    metadata = MetaData(schema="sample")
    columns = [Column("id", BigInteger, primary_key=True, autoincrement=False)]
    Table("items", metadata, *columns, Column("name", Text, nullable=False), *extra)
    return metadata


async def test_versions_are_applied_once(sample: Sample, empty_dsn: str) -> None:
    assert await current("sample", empty_dsn) is None
    assert await outdated("sample", empty_dsn)
    assert await migrate("sample", empty_dsn)
    assert not await outdated("sample", empty_dsn)
    assert not await migrate("sample", empty_dsn)
    sample.add("0002", "0001", SECOND)
    assert await migrate("sample", empty_dsn)
    assert await current("sample", empty_dsn) == "0002"
    await assert_schema_matches("sample", declared(Column("note", Text)), empty_dsn)


async def test_simultaneous_callers_take_turns(sample: Sample, empty_dsn: str) -> None:
    changed = await asyncio.gather(*(migrate("sample", empty_dsn) for _ in range(4)))
    assert sorted(changed) == [False, False, False, True]


async def test_a_failed_version_leaves_nothing(sample: Sample, empty_dsn: str) -> None:
    sample.add("0002", "0001", "op.execute('SELECT 1 / 0')")
    with pytest.raises(Exception, match="division by zero"):
        await migrate("sample", empty_dsn)
    assert await current("sample", empty_dsn) is None
    sample.add("0002", "0001", SECOND)
    assert await migrate("sample", empty_dsn)


async def test_a_migration_passes_failpoints(sample: Sample, empty_dsn: str) -> None:
    hits: list[tuple[str, str | None]] = []

    async def hook(name: str) -> None:
        hits.append((name, await current("sample", empty_dsn)))

    failpoints.install(hook)
    await migrate("sample", empty_dsn)
    assert hits == [("storage.migrate.before", None), ("storage.migrate.after", "0001")]


async def test_a_difference_to_the_declaration_is_found(sample: Sample, empty_dsn: str) -> None:
    await migrate("sample", empty_dsn)
    await assert_schema_matches("sample", declared(), empty_dsn)
    with pytest.raises(AssertionError, match="add_column"):
        await assert_schema_matches("sample", declared(Column("note", Text)), empty_dsn)
    with pytest.raises(AssertionError, match="remove_table"):
        await assert_schema_matches("sample", MetaData(schema="sample"), empty_dsn)


async def test_two_newest_versions_are_refused(sample: Sample, empty_dsn: str) -> None:
    sample.add("0002a", "0001", SECOND)
    sample.add("0002b", "0001", SECOND)
    with pytest.raises(ConfigurationError, match=r"0002a.*0002b"):
        await migrate("sample", empty_dsn)


def test_a_service_without_migrations_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nosuch"):
        versions_folder("nosuch")


async def test_every_sql_constant_is_prepared(sample: Sample, empty_dsn: str) -> None:
    await migrate("sample", empty_dsn)
    store = ModuleType("store")
    store.__dict__.update(
        DOC="Selects nothing.",
        GET="SELECT name FROM sample.items WHERE id = $1",
        _ADD="\n  -- a comment\n  INSERT INTO sample.items VALUES ($1, $2)",
        MANY={"one": "DELETE FROM sample.items", "two": ("WITH x AS (SELECT 1) SELECT * FROM x",)},
    )
    assert sorted(sql_constants(store)) == ["GET", "MANY['one']", "MANY['two'][0]", "_ADD"]
    assert await assert_sql_prepares(store, empty_dsn) == 4
    store.__dict__["BAD"] = "SELECT wrong FROM sample.items"
    with pytest.raises(AssertionError, match=r"store\.BAD: column"):
        await assert_sql_prepares(store, empty_dsn)


async def test_being_up_to_date_costs_one_query_and_no_import(
    sample: Sample, empty_dsn: str
) -> None:
    await migrate("sample", empty_dsn)
    code = (
        "import asyncio, sys, services\n"
        f"services.__path__.append({str(sample.versions.parents[2])!r})\n"
        "from foundation.storage.migrate import migrate\n"
        f"assert not asyncio.run(migrate('sample', {empty_dsn!r}))\n"
        "assert 'alembic' not in sys.modules and 'sqlalchemy' not in sys.modules\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, env=python_environment()
    )
    assert await process.wait() == 0
