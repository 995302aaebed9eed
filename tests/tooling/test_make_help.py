"""`make` says what it can do, and its help names only what exists."""

import re
import subprocess
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]


def make(*arguments: str) -> str:
    command = ["make", "-s", *arguments]
    return subprocess.run(command, cwd=REPO, check=True, capture_output=True, text=True).stdout


def test_help_lists_every_target_for_people() -> None:
    listed = set(re.findall(r"^  make (\S+)  +\S", make(), re.MULTILINE))
    assert listed >= {"run", "demo", "test", "test-full", "test-hitl-gate", "proto", "proto-check"}
    assert listed >= {"lint", "format", "lock", "clean", "help"}


def test_every_listed_target_can_be_planned() -> None:
    for target in re.findall(r"^  make (\S+)", make(), re.MULTILINE):
        make("--dry-run", target)
