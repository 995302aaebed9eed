"""The deadline of one call: `asyncio.timeout` as far as calls need it, but cheaper."""

import asyncio
import time
from types import TracebackType

_PRECISE_S = 2.0
"""Deadlines that are nearer have a timer of their own."""

_LOOK_S = 0.2


class within:  # noqa: N801  (used as a statement: `with within(seconds): …`)
    """Cancels the block after some seconds and raises TimeoutError instead; None for never.

    Deadlines of two seconds and more may be kept up to 0.2 s late: one timer looks after all of
    them, because hardly any call comes near its own. A cancellation from elsewhere that comes at
    the same time wins, as with `asyncio.timeout`.
    """

    __slots__ = ("_cancelling", "_expired", "_handle", "_seconds", "_task", "_watch", "at")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._expired = False
        self._handle: asyncio.TimerHandle | None = None
        self._watch: _Watch | None = None

    def __enter__(self) -> None:
        seconds = self._seconds
        if seconds is None:
            return
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a call runs in a task")
        self._task, self._cancelling = task, task.cancelling()
        if seconds < _PRECISE_S:
            self._handle = loop.call_later(max(0.0, seconds), self.expire)
        else:
            self.at = time.monotonic() + seconds
            self._watch = watch = _watch_of(loop)
            watch.add(self)

    def expire(self) -> None:
        """The time is over."""
        self._expired = True
        self._task.cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._watch is not None:
            self._watch.blocks.discard(self)
        elif self._handle is not None:
            self._handle.cancel()
        if not self._expired:
            return
        ours = self._task.uncancel() <= self._cancelling
        if ours and kind is asyncio.CancelledError:
            raise TimeoutError from error


class _Watch:
    """The blocks of one event loop whose deadline is not near."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.blocks: set[within] = set()
        self._is_looking = False

    def add(self, block: within) -> None:
        self.blocks.add(block)
        if not self._is_looking:
            self._is_looking = True
            self.loop.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        now = time.monotonic()
        for block in [one for one in self.blocks if one.at <= now]:
            self.blocks.discard(block)
            block.expire()
        self._is_looking = bool(self.blocks)
        if self._is_looking:
            self.loop.call_later(_LOOK_S, self._look)


_watch: _Watch | None = None


def _watch_of(loop: asyncio.AbstractEventLoop) -> _Watch:
    """The loop's watch; a process has one loop, and a test may have one after the other."""
    global _watch
    if _watch is None or _watch.loop is not loop:
        _watch = _Watch(loop)
    return _watch
