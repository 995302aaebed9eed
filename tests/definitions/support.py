"""Calls with the official synchronous client, beside the test's event loop."""

import asyncio
from collections.abc import Callable

import anthropic
import pytest

from tests.support.system import DEVELOPMENT_KEY, System


async def calling(system: System, check: Callable[[anthropic.Anthropic], None]) -> None:
    """Run `check` in a thread of its own."""

    def run() -> None:
        with anthropic.Anthropic(
            api_key=DEVELOPMENT_KEY, base_url=system.rest_url, max_retries=0, timeout=60
        ) as client:
            check(client)

    await asyncio.to_thread(run)


def refusal(call: Callable[[], object], status: int, words: str) -> anthropic.APIStatusError:
    """The call fails with this status, and its message has these words."""
    with pytest.raises(anthropic.APIStatusError) as caught:
        call()
    assert caught.value.status_code == status
    assert words in caught.value.message
    return caught.value
