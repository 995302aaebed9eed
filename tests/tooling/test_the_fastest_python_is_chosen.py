"""`make` takes a Python that was compiled with profiles of itself, where there is one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import interpreter

REPO = Path(__file__).resolve().parents[2]
FAST = "'--prefix=/opt/python' '--enable-optimizations' '--with-lto'"
SLOW = "'--prefix=/opt/python' '--enable-shared'"
_OF_MAKE = {"PYTHON", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL"}
"""What a make that runs these tests hands on to its children."""


@pytest.mark.parametrize(
    ("version", "supported"), [((3, 10), False), ((3, 11), True), ((3, 12), True), ((3, 13), False)]
)
def test_only_tested_versions_are_supported(version: tuple[int, int], supported: bool) -> None:
    assert interpreter.is_supported(version) is supported


@pytest.mark.parametrize(
    ("prefix", "options", "optimised"),
    [
        ("/usr", SLOW, True),  # the distribution's own
        ("/usr/local", FAST, True),
        ("/usr/local", SLOW, False),
        ("/opt/python", FAST, True),
        ("/opt/python", SLOW, False),
        ("/opt/python", "", False),
    ],
)
def test_the_build_says_whether_it_was_optimised(
    prefix: str, options: str, optimised: bool
) -> None:
    assert interpreter.is_optimised(prefix, options) is optimised


@pytest.fixture
def pythons(tmp_path: Path) -> Path:
    """A folder to put Pythons into; make finds none but these."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def _put(folder: Path, name: str, answers: str) -> None:
    """A Python that answers yes to the needs in `answers`."""
    python = folder / name
    python.write_text(f'#!/bin/sh\ncase " {answers} " in *" $2 "*) exit 0;; esac; exit 1\n')
    python.chmod(0o755)


def _chosen(folder: Path) -> str:
    """What make would install with, where nothing is installed."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    makefile = f"include {REPO}/Makefile\nchosen: ; @echo $(PYTHON)\n"
    done = subprocess.run(
        [
            *("make", "-s", "-f", "-", "chosen", "BIN=nowhere/bin"),
            "CANDIDATES=python3.11 python3.12 python3",
        ],
        input=makefile,
        cwd=REPO,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("first", "second", "third", "chosen"),
    [
        ("any fast", "any fast", "any fast", "python3.11"),
        ("any", "any fast", "any fast", "python3.12"),
        ("any", "", "any fast", "python3"),
        ("any", "any", "any", "python3.11"),
        ("", "any", "", "python3.12"),
        ("", "", "", "python3"),  # and the installation says what is wrong with it
    ],
)
def test_make_takes_the_first_fast_one_else_the_first(
    pythons: Path, first: str, second: str, third: str, chosen: str
) -> None:
    for name, answers in zip(
        ("python3.11", "python3.12", "python3"), (first, second, third), strict=True
    ):
        _put(pythons, name, answers)
    assert _chosen(pythons) == chosen


def test_the_answer_is_an_exit_code() -> None:
    asked = [sys.executable, "tools/interpreter.py"]
    assert subprocess.run([*asked, "any"], cwd=REPO, check=False).returncode == 0
    fast = subprocess.run([*asked, "fast"], cwd=REPO, check=False).returncode == 0
    assert fast is (interpreter.this_is_optimised() and interpreter.makes_environments())
