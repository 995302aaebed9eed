"""Waiting for what nobody announces."""

import asyncio
from collections.abc import Awaitable, Callable

_PAUSE_SECONDS = 0.02


async def eventually(holds: Callable[[], Awaitable[bool]], seconds: float = 20) -> None:
    """Returns when `holds` does; raises TimeoutError when that takes too long."""
    async with asyncio.timeout(seconds):
        while True:
            if await holds():
                return
            await asyncio.sleep(_PAUSE_SECONDS)
