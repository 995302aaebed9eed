"""`docs/internals/recovery.md` names tests that exist and commits that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/internals/recovery.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))
FAILPOINTS = sorted(set(re.findall(r"`((?:ledger|transcript|journal|context)\.\w+)`", PAGE)))


def test_the_page_names_tests_and_commits() -> None:
    assert len(NAMED) > 20
    assert len(FAILPOINTS) > 10


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_named_test_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    functions = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not name or name in functions


@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_a_named_commit_exists(failpoint: str) -> None:
    service = failpoint.split(".")[0]
    sources = (ROOT / "services" / service).glob("*.py")
    assert any(f'"{failpoint}"' in source.read_text() for source in sources)
