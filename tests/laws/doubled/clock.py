"""An event loop for schedules: its time moves only when told, and it knows when nothing runs."""

import asyncio
import heapq
import selectors
import time
from collections.abc import Callable
from typing import Any


class _Selector(selectors.DefaultSelector):
    """Asks the loop what to do instead of waiting for time to pass."""

    loop: "IdleLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.loop.is_busy():
            return super().select(1.0)
        if self.loop.wake_idle():
            return []
        # Nobody plays: time passes as usual.
        ready = super().select(timeout)
        if not ready and timeout is not None:
            self.loop.advance(timeout)
        return ready


class IdleLoop(asyncio.SelectorEventLoop):
    """While somebody awaits `idle`, time stands still unless `advance` moves it.

    The loop is idle when no callback is due and `is_busy` says that no answer of the database is
    awaited: then every task waits for the schedule, or for time.
    """

    def __init__(self) -> None:
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self
        self.passed = 0.0
        self.is_busy: Callable[[], bool] = lambda: False
        self._waiter: asyncio.Future[None] | None = None

    def time(self) -> float:
        return self.passed

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.passed += seconds

    def until_timer(self) -> float | None:
        """Seconds until the next timer; None without one."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0].cancelled():
            timer = heapq.heappop(timers)
            timer._scheduled = False
            self._timer_cancelled_count -= 1
        return max(0.0, timers[0].when() - self.passed) if timers else None

    async def idle(self) -> None:
        """Return when nothing can happen any more without the schedule."""
        self._waiter = self.create_future()
        await self._waiter

    def wake_idle(self) -> bool:
        """Tell who waits for `idle`; whether anybody does."""
        waiter, self._waiter = self._waiter, None
        if waiter is None or waiter.done():
            return False
        waiter.set_result(None)
        return True


class ExecutorClock:
    """In place of the `time` module where deadlines are measured: jumps of the schedule count."""

    def __init__(self, loop: IdleLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return time.monotonic() + self._loop.passed
