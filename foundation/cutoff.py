"""A task that works for others, and may be cut off what it does for nobody any more."""

import asyncio


class CutOff:
    """Cancels what a task does without ending the task.

    `task` is the one that works; it asks `goes_on` when it is cancelled.
    """

    __slots__ = ("_is_cut", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self._is_cut = False

    def cut(self) -> None:
        """Nobody waits for what is done now; once, however many say so at the same time."""
        if self.task is not None and not self._is_cut:
            self._is_cut = True
            self.task.cancel()

    def goes_on(self) -> bool:
        """Whether a cancellation was `cut`, which ends nothing else."""
        if self.task is None or not self._is_cut:
            return False
        self._is_cut = False
        return self.task.uncancel() == 0  # else this process stops at the same time
