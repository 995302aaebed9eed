"""`docs/laws.md` leaves no rule, no place to die and no criterion out."""

import re

from tests.readme.documents import REPO

PAGE = "docs/laws.md"
UNTESTED = "no test yet"


def rows() -> dict[str, str]:
    """What shows each row, by its name."""
    found: dict[str, str] = {}
    for line in (REPO / PAGE).read_text().splitlines():
        if match := re.match(r"\| ([PCA]\d+[a-z]?) \| [^|]+ \| (.+) \|$", line):
            assert match[1] not in found
            found[match[1]] = match[2]
    return found


def test_every_rule_has_a_row() -> None:
    names = [f"P{number}" for number in range(1, 35)]
    names += [f"C{number}" for number in range(25)]
    names += [f"A{number}" for number in range(1, 10)]
    names += [f"A10{letter}" for letter in "abcdefghi"]
    assert list(rows()) == names


def test_every_row_names_a_test_or_says_that_there_is_none() -> None:
    for name, shown_by in rows().items():
        assert "`tests/" in shown_by or shown_by.startswith(UNTESTED), name
