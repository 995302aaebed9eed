"""The documents that users read, and the code blocks in them."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PLACES = ("*.md", "docs/**/*.md", "examples/**/*.md")
RUNNABLE = ("bash", "python")
SHOWN = ("text", "json", "sql")
"""Languages of blocks that show something and cannot be run."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block: its document (relative to the repository), its language, its code."""

    document: str
    language: str
    code: str

    @property
    def name(self) -> str:
        """The document and the block's first line."""
        return f"{self.document}: {self.code.splitlines()[0]}"


def documents() -> list[Path]:
    """Every document."""
    return sorted({path for place in PLACES for path in REPO.glob(place)})


def blocks() -> list[Block]:
    """Every fenced block of every document."""
    return [
        Block(str(path.relative_to(REPO)), match[1], match[2])
        for path in documents()
        for match in _FENCE.finditer(path.read_text())
    ]


def table_rows(document: str, heading: str) -> list[list[str]]:
    """The cells of the table rows below a heading, without the table's own head."""
    text = (REPO / document).read_text().partition(f"\n{heading}\n")[2]
    section = re.split(r"^#+ ", text, maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in rows]
    return [row for row in cells if not set("".join(row)) <= set("-:") and row[0].startswith("`")]


def named_tests(document: str) -> list[tuple[str, str]]:
    """Path and function of every test that a document names; an empty function for a whole file."""
    text = (REPO / document).read_text()
    return sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)))


def functions_of(path: str) -> set[str]:
    """The names of a module's functions."""
    tree = ast.parse((REPO / path).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
