"""The deadline of one call: `asyncio.timeout` as far as calls need it, for a third of its time."""

import asyncio
from types import TracebackType


class within:  # noqa: N801  (used as a statement: `with within(seconds): …`)
    """Cancels the block after some seconds and raises TimeoutError instead; None for never.

    A cancellation from elsewhere that comes at the same time wins, as with `asyncio.timeout`.
    """

    __slots__ = ("_cancelling", "_expired", "_handle", "_seconds", "_task")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._expired = False

    def __enter__(self) -> None:
        if self._seconds is None:
            self._handle = None
            return
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a call runs in a task")
        self._task, self._cancelling = task, task.cancelling()
        self._handle = loop.call_later(max(0.0, self._seconds), self._expire)

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._handle is None:
            return
        self._handle.cancel()
        if not self._expired:
            return
        ours = self._task.uncancel() <= self._cancelling
        if ours and kind is asyncio.CancelledError:
            raise TimeoutError from error
