"""Law 5: what the model sees is computed in one place. Whatever else reads entries of a transcript
or projections of the journal is listed here, with what it needs them for; none of it makes a
request."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
PACKAGES = ("services", "gateway", "cli", "foundation")

READERS: dict[str, dict[str, str]] = {
    # The transcript's entries.
    "ListEntries": {
        "cli/importing/checks/reading.py": "an export's lines in the transcript's place",
        "services/context/history.py": "effective history",
        "services/context/rewriting.py": "whether entries between two snapshots rewrite history",
        "services/runner/recovery.py": "what earlier owners of a turn left, to go on from there",
        "services/transcript/service.py": "the authority itself",
    },
    # The journal's operations, with their projections.
    "GetOperations": {
        "cli/importing/checks/reading.py": "an export's lines in the journal's place",
        "services/context/history.py": "effective history",
        "services/context/reading.py": "how the model calls of snapshots ended",
        "services/journal/service.py": "the authority itself",
        "services/runner/advance.py": "outcomes of calls that ended elsewhere, to refer to them",
        "services/runner/execution.py": "the same",
        "services/runner/publisher.py": "the same",
        "services/tools/archive.py": "pages of an archived result, appended as a new result",
    },
    # Which artifacts projections refer to; nothing of what they show.
    "CollectReferences": {
        "services/journal/service.py": "the authority itself",
        "services/runner/collecting.py": "what a collector must leave alone",
        "cli/redacting.py": "what else refers to the bytes of a redacted result",
    },
    # The reducer, and the opening behind a checkpoint.
    "reduce": {"services/context/history.py": "effective history"},
    "opening": {"services/context/history.py": "effective history"},
    # Effective history as messages.
    "materialize": {"services/context/cache.py": "requests"},
}


def _calls(path: Path) -> Iterator[str]:
    """Names of what a module calls, or refers to as a method."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id
        elif isinstance(node, ast.AsyncFunctionDef):
            yield node.name


@pytest.mark.parametrize("name", READERS)
def test_nothing_else_reads_what_the_model_sees(name: str) -> None:
    readers = {
        str(path.relative_to(REPO))
        for package in PACKAGES
        for path in (REPO / package).rglob("*.py")
        if name in _calls(path)
    }
    assert readers == READERS[name].keys()


def test_request_bodies_are_made_of_materialized_history_alone() -> None:
    """Only the context service writes `"messages":[`, and only in front of what `Warm` joins."""
    writers = {
        str(path.relative_to(REPO))
        for package in PACKAGES
        for path in (REPO / package).rglob("*.py")
        if '"messages":[' in path.read_text()
    }
    assert writers == {"services/context/materializer.py"}
