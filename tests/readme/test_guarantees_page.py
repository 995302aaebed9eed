"""`docs/guarantees.md` promises nothing without a test."""

from itertools import pairwise

from tests.readme.documents import REPO

PAGE = "docs/guarantees.md"
CRASH_TABLE = "crash table"


def rows() -> list[list[str]]:
    """The cells of every row of every table, without heads."""
    lines = (REPO / PAGE).read_text().splitlines()
    found: list[list[str]] = []
    for before, line in pairwise(lines):
        if line.startswith("|") and before.startswith("|") and not line.startswith("|---"):
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_each_row_has_a_failure_what_is_seen_and_a_test() -> None:
    assert len(rows()) > 40
    for row in rows():
        failure, seen, shown_by = row
        assert failure
        assert seen
        assert "`tests/" in shown_by or shown_by.startswith(CRASH_TABLE), row
