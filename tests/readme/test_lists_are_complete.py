"""Lists in the documents say what the code says, links lead somewhere, named tests exist."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from foundation.settings import SERVICES, Settings
from tests.readme.documents import REPO, documents, functions_of, named_tests, table_rows

SETTINGS = "docs/operating/settings.md"
DEPENDENCIES = "docs/dependencies.md"
_NAME = re.compile(r"^[A-Za-z0-9._-]+")
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def _requirements(heading: str) -> list[str]:
    project: dict[str, Any] = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    found = {
        "## Runtime": project["dependencies"],
        "## Development": project["optional-dependencies"]["dev"],
    }
    return [match[0] for text in found[heading] if (match := _NAME.match(text))]


@pytest.mark.parametrize("heading", ["## Runtime", "## Development"])
def test_each_dependency_has_a_line_with_its_reason(heading: str) -> None:
    rows = table_rows(DEPENDENCIES, heading)
    assert [name.strip("`") for name, _ in rows] == _requirements(heading)
    assert all(reason for _, reason in rows)


def _default(field: FieldInfo) -> str:
    value = field.default
    text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
    return f"`{text}`" if value is not None and text else ""


def test_each_setting_has_a_line_with_its_default_and_its_description() -> None:
    rows = table_rows(SETTINGS, "## Variables")
    own = {name: field for name, field in Settings.model_fields.items() if field.description}
    listed = [row for row in rows if "<SERVICE>" not in row[0]]
    assert listed == [
        [f"`COUNTERFOIL_{name.upper()}`", _default(field), field.description]
        for name, field in own.items()
    ]
    of_services = {f"{service}_{kind}" for service in SERVICES for kind in _kinds(rows)}
    assert of_services == Settings.model_fields.keys() - own.keys()


def _kinds(rows: list[list[str]]) -> set[str]:
    prefix = "`COUNTERFOIL_<SERVICE>_"
    return {row[0].removeprefix(prefix).strip("`").lower() for row in rows if prefix in row[0]}


def test_links_inside_the_repository_lead_to_files() -> None:
    broken = [
        f"{document.relative_to(REPO)}: {target}"
        for document in documents()
        for target in _LINK.findall(document.read_text())
        if "://" not in target and not (document.parent / target).exists()
    ]
    assert broken == []


def test_the_picture_says_what_it_shows_and_knows_the_dark() -> None:
    picture = Path(REPO / "docs" / "images" / "architecture.svg").read_text()
    assert "prefers-color-scheme: dark" in picture
    assert "<title" in picture
    assert all(f">{service}<" in picture for service in (*SERVICES, "gateway", "runner"))


def test_every_page_is_in_the_index() -> None:
    index = REPO / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link in _LINK.findall(index.read_text())}
    assert set((REPO / "docs").rglob("*.md")) - {index} <= linked


@pytest.mark.parametrize(
    ("path", "name"),
    sorted({test for page in documents() for test in named_tests(str(page.relative_to(REPO)))}),
)
def test_a_named_test_exists(path: str, name: str) -> None:
    assert not name or name in functions_of(path)
    assert (REPO / path).is_file()
