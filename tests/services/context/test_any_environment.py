"""What the model sees depends on nothing but what is stored: not on hash seeds, languages or time
zones of the process that makes it (P4)."""

import os
import subprocess
import sys

import pytest

from tests.readme.documents import REPO

SCRIPT = """
import hashlib
from services.context.reducer import effective_digest, reduce
from services.context.summary import extended, encode, Sections
from tests.services.context.histories import History, projection, text, use, written

history = History()
for turn in range(6):
    history.ask(text(f"turn {turn}: you must keep \\u0130\\u00df/{turn}.txt"))
    history.answer(text("next: t_abcdef1"), use("b"), use("a"))
    history.results(projection("one", "\\u20ac"), projection("two", is_error=True))
    history.answer(text("done"))
items = reduce(history.entries, history.projections).items
made = [*written(items), effective_digest(b"", items), encode(extended(Sections(), items, "r"))]
print(hashlib.sha256(b"|".join(made)).hexdigest())
"""


def digest_in(**environment: str) -> str:
    """What a new process with this environment makes of one history."""
    path = os.pathsep.join([str(REPO), str(REPO / "gen/python")])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={"PYTHONPATH": path, "PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=True,
        cwd=REPO,
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def usual() -> str:
    return digest_in(PYTHONHASHSEED="0", LANG="C.UTF-8", TZ="UTC")


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONHASHSEED": "1", "LANG": "C", "TZ": "Asia/Kathmandu"},
        {"PYTHONHASHSEED": "4242", "LC_ALL": "tr_TR.UTF-8", "TZ": "America/St_Johns"},
    ],
)
def test_the_same_history_is_the_same_in_every_environment(
    usual: str, environment: dict[str, str]
) -> None:
    assert digest_in(**environment) == usual
