from collections.abc import AsyncGenerator, Generator

import pytest

from services.runner.adapter.messages import MessagesAdapter
from tests.offline_model.support import Server, running


@pytest.fixture(scope="session")
def provider() -> Generator[Server]:
    """An offline model of this folder's tests."""
    with running() as server:
        yield server


@pytest.fixture
async def adapter(provider: Server) -> AsyncGenerator[MessagesAdapter]:
    made = MessagesAdapter(provider.url, "key", idle_seconds=5)
    yield made
    await made.close()
