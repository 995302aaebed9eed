"""`docs/internals/recovery.md` names tests and commits that exist."""

import re

import pytest

from tests.readme.documents import REPO, named_tests

PAGE = (REPO / "docs/internals/recovery.md").read_text()
NAMED = named_tests("docs/internals/recovery.md")
FAILPOINTS = sorted(set(re.findall(r"`((?:ledger|transcript|journal|context)\.\w+)`", PAGE)))


def test_the_page_names_tests_and_commits() -> None:
    assert len(NAMED) > 20
    assert len(FAILPOINTS) > 10


@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_a_named_commit_exists(failpoint: str) -> None:
    service = failpoint.split(".")[0]
    sources = (REPO / "services" / service).glob("*.py")
    assert any(f'"{failpoint}"' in source.read_text() for source in sources)
