"""What `make run` starts, once for all blocks."""

from collections.abc import Generator
from pathlib import Path

import pytest

from cli.demo_stage import Server, free_ports


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """`counterfoil run` on ports and a folder of its own, with the offline model."""
    folder: Path = tmp_path_factory.mktemp("readme")
    port, grpc_port = free_ports(2)
    started = Server(folder, port, grpc_port)
    try:
        started.start()
        yield started
    finally:
        started.stop()
