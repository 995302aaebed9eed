"""Running a coroutine in a context of its own, without the task that would cost most of a call."""

from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any, TypeVar

R = TypeVar("R")


class Apart:
    """Awaits `work` in the task that awaits this, with a copy of its context.

    What `work` sets in context variables stays there, as in a task; cancelling reaches it at once,
    and no turn of the event loop lies between the two.
    """

    __slots__ = ("_work",)

    def __init__(self, work: Coroutine[Any, Any, R]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        run, work = copy_context().run, self._work
        try:
            waits_for = run(work.send, None)
            while True:
                try:
                    got = yield waits_for
                except BaseException as error:
                    thrown = error
                else:
                    waits_for = run(work.send, got)
                    continue
                try:
                    waits_for = run(work.throw, thrown)
                finally:
                    del thrown  # an exception that holds this frame would be a cycle
        except StopIteration as done:
            return done.value
