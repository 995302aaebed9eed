from collections.abc import Generator
from pathlib import Path

import pytest

from tests.offline_model.support import Server, running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """One server for all tests that need no life of their own."""
    folder: Path = tmp_path_factory.mktemp("offline")
    (folder / "scenarios").mkdir()
    with running(folder / "record", folder / "scenarios") as started:
        yield started
