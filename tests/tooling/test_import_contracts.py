"""Who may import whom: the contracts in `pyproject.toml` refuse what they are there to refuse."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.proto import script

REPO = Path(__file__).resolve().parents[2]
PACKAGES = (
    "bench",
    "buf",
    "cli",
    "counterfoil",
    "foundation",
    "gateway",
    "offline_model",
    "services",
    "services/journal",
    "services/ledger",
)

Check = Callable[[str, str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Return a function: let one package import another, and ask import-linter."""
    shutil.copy(REPO / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()

    def run(importer: str, imported: str) -> "subprocess.CompletedProcess[str]":
        (tmp_path / importer / "module.py").write_text(f"import {imported}\n")
        command = [script("lint-imports"), "--no-cache"]
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True
        )

    return run


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("foundation", "services.ledger"),
        ("foundation", "gateway"),
        ("foundation", "cli"),
        ("services/journal", "services.ledger"),
        ("services/journal", "gateway"),
        ("services/journal", "cli"),
        ("gateway", "services.ledger"),
        ("gateway", "cli"),
        ("offline_model", "foundation"),
        ("offline_model", "counterfoil"),
        ("counterfoil", "foundation"),
    ],
)
def test_a_forbidden_import_is_refused(check: Check, importer: str, imported: str) -> None:
    answer = check(importer, imported)
    assert answer.returncode == 1, answer.stdout
    assert "BROKEN" in answer.stdout


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("services/journal", "foundation"),
        ("services/journal", "counterfoil"),
        ("gateway", "foundation"),
        ("cli", "services.ledger"),
        ("cli", "gateway"),
        ("cli", "offline_model"),
    ],
)
def test_an_allowed_import_is_accepted(check: Check, importer: str, imported: str) -> None:
    answer = check(importer, imported)
    assert answer.returncode == 0, answer.stdout
