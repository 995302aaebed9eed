"""What the tests of this folder share."""

from typing import Any

import anthropic
import pytest


async def refused(call: Any, *words: str, status: int = 400) -> None:
    """The call fails with this status, and its message has these words."""
    with pytest.raises(anthropic.APIStatusError) as caught:
        await call
    assert caught.value.status_code == status
    for word in words:
        assert word in caught.value.message
