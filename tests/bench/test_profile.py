"""Flame graphs can be published: they do not say where anything is installed."""

import sys
from pathlib import Path

import pytest

from bench import profile


@pytest.mark.parametrize(
    "file", [Path(profile.__file__), Path(pytest.__file__), Path(sys.base_prefix, "lib", "os.py")]
)
def test_a_graph_names_files_without_their_folders(file: Path) -> None:
    graph = f"<title>work ({file}:7) (3 samples)</title>"
    shown = profile.without_places(graph)
    assert str(file.parent.parent) not in shown
    assert f"{file.name}:7" in shown
