"""The lock files are complete, hashed, of no machine; nothing is installed twice."""

import re
import tomllib
from pathlib import Path

import pytest

from tools import install

REPO = Path(__file__).resolve().parents[2]
LOCKS = (REPO / "requirements.lock", REPO / "requirements-dev.lock")
PINNED = re.compile(
    r"^([a-z0-9][a-z0-9.-]*)==(\S+)(?: ;.*)? \\\n((?:    --hash=.*\n)+)", re.MULTILINE
)
NAME = re.compile(r"^[A-Za-z0-9._-]+")


def pins(lock: Path) -> dict[str, str]:
    return {match[1]: match[2] for match in PINNED.finditer(lock.read_text())}


def names(requirements: list[str]) -> set[str]:
    return {match[0].lower() for text in requirements if (match := NAME.match(text))}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_pin_has_a_hash(lock: Path) -> None:
    assert len(pins(lock)) == install.package_count(lock.read_text().splitlines()) > 0


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_names_no_host_and_no_path(lock: Path) -> None:
    lines = lock.read_text().splitlines()
    assert [line for line in lines if re.search(r"://|index-url|find-links|(^|[ =@])/", line)] == []


def test_the_locks_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())
    runtime, dev = (pins(lock) for lock in LOCKS)
    asked = project["project"]["dependencies"] + project["dependency-groups"]["build"]
    assert names(asked) <= runtime.keys()
    assert names(project["project"]["optional-dependencies"]["dev"]) <= dev.keys()


def test_development_uses_the_versions_of_the_runtime() -> None:
    runtime, dev = (pins(lock) for lock in LOCKS)
    assert {name: dev.get(name) for name in runtime} == runtime


def test_progress_follows_what_pip_says() -> None:
    said = (
        "Collecting alembic==1.20.1 (from -r requirements.lock (line 3))",
        "  Downloading alembic-1.20.1-py3-none-any.whl (263 kB)",
        "Requirement already satisfied: rich==15.0.0 in ./.venv/lib (from -r requirements.lock)",
    )
    assert [install.progress_name(line) for line in said] == ["alembic", None, "rich"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    venv = tmp_path / ".venv"
    monkeypatch.setattr(install, "REPO", tmp_path)
    monkeypatch.setattr(install, "VENV", venv)
    monkeypatch.setattr(install, "VENV_PYTHON", venv / "bin" / "python")
    for name in ("requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        (tmp_path / name).write_text(name)
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").touch()
    return tmp_path


@pytest.mark.usefixtures("project")
def test_an_empty_environment_is_not_installed() -> None:
    assert not install.installed(dev=False)
    assert not install.installed(dev=True)


@pytest.mark.usefixtures("project")
def test_a_development_installation_serves_the_runtime_but_not_the_reverse() -> None:
    install.stamp(dev=False).write_text(install.digest(dev=False))
    assert install.installed(dev=False)
    assert not install.installed(dev=True)
    install.stamp(dev=False).unlink()
    install.stamp(dev=True).write_text(install.digest(dev=True))
    assert install.installed(dev=False)
    assert install.installed(dev=True)


@pytest.mark.parametrize(
    "changed", ["requirements.lock", "pyproject.toml", "gateway/__init__.py"], ids=str
)
def test_what_an_installation_depends_on_makes_it_stale(project: Path, changed: str) -> None:
    install.stamp(dev=False).write_text(install.digest(dev=False))
    assert install.installed(dev=False)
    (project / changed).parent.mkdir(exist_ok=True)
    (project / changed).write_text("changed")
    assert not install.installed(dev=False)
