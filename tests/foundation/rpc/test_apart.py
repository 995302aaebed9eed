"""What runs apart has a context of its own; cancelling and failing pass through it as in a task."""

import asyncio
from contextvars import ContextVar

import pytest

from foundation.rpc.apart import Apart

_variable: ContextVar[str] = ContextVar("variable", default="unset")


async def test_it_sees_its_callers_context_and_keeps_its_own() -> None:
    async def work() -> list[str]:
        seen = [_variable.get()]
        _variable.set("inner")
        await asyncio.sleep(0)
        seen.append(_variable.get())
        return seen

    _variable.set("outer")
    assert await Apart(work()) == ["outer", "inner"]
    assert _variable.get() == "outer"


async def test_callers_of_callers_are_kept_apart_too() -> None:
    async def inner() -> str:
        _variable.set("inner")
        await asyncio.sleep(0)
        return _variable.get()

    async def middle() -> tuple[str, str]:
        _variable.set("middle")
        found = await Apart(inner())
        await asyncio.sleep(0)
        return found, _variable.get()

    found = await asyncio.gather(Apart(middle()), Apart(middle()))
    assert found == [("inner", "middle")] * 2
    assert _variable.get() == "unset"


async def test_cancelling_reaches_the_work_which_may_clean_up() -> None:
    steps: list[str] = []

    async def work() -> None:
        _variable.set("inner")
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0)
            steps.append(_variable.get())

    async def caller() -> None:
        await Apart(work())

    task = asyncio.create_task(caller())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["inner"]


async def test_a_failure_is_the_callers_and_what_was_awaited_fails_into_the_work() -> None:
    waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        try:
            await waited
        except KeyError:
            raise ValueError("the work's") from None

    waited.get_loop().call_soon(waited.set_exception, KeyError())
    with pytest.raises(ValueError, match="the work's"):
        await Apart(work())


async def test_closing_the_caller_closes_the_work() -> None:
    closed: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            closed.append("yes")

    async def caller() -> None:
        await Apart(work())

    running = caller()
    running.send(None)
    running.close()
    assert closed == ["yes"]
