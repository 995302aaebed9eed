"""Named gates that hold requests open until a test releases them."""

import asyncio
from collections import Counter

from msgspec import Struct


class GateState(Struct):
    """A gate as tests see it: how many requests it holds, and whether it is open."""

    name: str
    waiting: int
    released: bool


class Gates:
    """A released gate stays open until it is closed again, so that a repeat passes too."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}
        self._waiting: Counter[str] = Counter()
        self._changed = asyncio.Condition()

    async def wait(self, name: str, gone: "asyncio.Future[None]") -> None:
        """Returns when the gate opens or ``gone`` completes."""
        opened = asyncio.ensure_future(self._event(name).wait())
        await self._count(name, 1)
        try:
            await asyncio.wait([opened, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
            await self._count(name, -1)

    def release(self, name: str) -> int:
        """Opens the gate; how many requests it held."""
        self._event(name).set()
        return self._waiting[name]

    def close(self, name: str) -> None:
        """Holds later requests again."""
        self._event(name).clear()

    def release_all(self) -> None:
        """Lets every held request go, and forgets which gates were open."""
        for event in self._events.values():
            event.set()
        self._events = {}

    async def waited(self, name: str, at_least: int, seconds: float) -> GateState:
        """The gate's state, once ``at_least`` requests wait or ``seconds`` passed."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self._waiting[name] >= at_least)
        except TimeoutError:
            pass
        return self.state(name)

    def state(self, name: str) -> GateState:
        """The gate as it is now."""
        return GateState(name, self._waiting[name], self._event(name).is_set())

    def _event(self, name: str) -> asyncio.Event:
        return self._events.setdefault(name, asyncio.Event())

    async def _count(self, name: str, change: int) -> None:
        self._waiting[name] += change
        async with self._changed:
            self._changed.notify_all()
