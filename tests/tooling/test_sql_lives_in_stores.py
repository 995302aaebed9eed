"""SQL stands in the modules that are there for it; everything else calls them, and decides."""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
PACKAGES = ("services", "gateway", "cli", "foundation", "offline_model")

PLACES = {
    "services/*/store.py": "statements of an authority",
    "services/*/*_store.py": "the same",
    "services/*/export_parts.py": "which rows of its tables an authority exports",
    "services/*/schema.py": "its tables",
    "services/*/*_schema.py": "the same",
    "services/ledger/tables.py": "what the ledger's two schema modules share",
    "services/*/migrations/*.py": "how its tables came to be",
    "foundation/storage/*.py": "connections, transactions, notifications, migrations",
    "foundation/exports/*.py": "rows of any table as lines",
    "foundation/idempotency/*.py": "answers to repeated requests, in any schema",
    "foundation/postgres/supervisor.py": "creates the database of the embedded server",
    "cli/composition.py": "whether a database answers",
    "cli/doctor_peers.py": "settings and clock of a server",
}
"""Where SQL may stand, and what it is for."""

STATEMENT = re.compile(
    r"\s*(SELECT\s|INSERT\s+INTO\s|UPDATE\s+\S+\s.*\bSET\s|DELETE\s+FROM\s|WITH\s+\w+.*\bAS\s*\("
    r"|(CREATE|ALTER|DROP|LOCK|TRUNCATE)\s+(TABLE|INDEX|SCHEMA|DATABASE)\s|(NOT\s+)?EXISTS\s*\("
    r"|CASE\s+WHEN\s|SHOW\s+\w|LISTEN\s|NOTIFY\s)",
    re.DOTALL,
)
DRIVERS = {"sqlalchemy", "asyncpg", "alembic"}


def sql(source: str) -> Iterator[int]:
    """Lines with SQL: statements, parts of some, and what is there to make them."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)) if STATEMENT.match(text):
                yield node.lineno
            case ast.Call(func=ast.Name(id="TablePart")):
                yield node.lineno
            case ast.Import(names=names) if {one.name.split(".")[0] for one in names} & DRIVERS:
                yield node.lineno
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in DRIVERS:
                yield node.lineno
            case _:
                pass


def modules() -> dict[str, list[int]]:
    """Every module with SQL, and the lines."""
    found: dict[str, list[int]] = {}
    for package in PACKAGES:
        for path in (REPO / package).rglob("*.py"):
            if lines := list(sql(path.read_text())):
                found[str(path.relative_to(REPO))] = lines
    return found


def test_sql_stands_where_it_belongs() -> None:
    elsewhere = {
        f"{path}:{line}"
        for path, lines in modules().items()
        if not any(fnmatch(path, place) for place in PLACES)
        for line in lines
    }
    assert not elsewhere


def test_every_place_has_some() -> None:
    paths = modules()
    assert [place for place in PLACES if not any(fnmatch(path, place) for path in paths)] == []


@pytest.mark.parametrize(
    "source",
    [
        'LOOK = """\nSELECT 1 FROM files.blobs\n"""',
        'PUT = "INSERT INTO files.blobs VALUES ($1)"',
        'CHANGE = "UPDATE files.blobs b SET state = 3"',
        'DROP = f"DELETE FROM {table}"',
        'FIRST = "WITH one AS (SELECT 1) SELECT * FROM one"',
        'LOCK = "LOCK TABLE registry.agents IN SHARE MODE"',
        'PART = "CASE WHEN state = 1 THEN 2 ELSE 3 END"',
        'PARTS = TablePart("files.blob", table, condition="x <= {0}")',
        "from sqlalchemy import text",
        "import asyncpg.exceptions",
    ],
)
def test_sql_is_recognised(source: str) -> None:
    assert list(sql(source)) == [1]


@pytest.mark.parametrize(
    "source",
    ['"""Update the set."""', 'NAME = "update_agent"', 'TEXT = "Select one."', "import sqlite3"],
)
def test_words_are_no_sql(source: str) -> None:
    assert list(sql(source)) == []
