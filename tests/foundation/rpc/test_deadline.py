"""A deadline ends its block and nothing else; a cancellation from elsewhere stays one."""

import asyncio
import time

import pytest

from foundation.rpc import deadline
from foundation.rpc.deadline import within


@pytest.fixture(autouse=True, params=["a timer of its own", "one for all"])
def timer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to keep a deadline hold the same rules."""
    if request.param == "one for all":
        monkeypatch.setattr(deadline, "_PRECISE_S", 0)
        monkeypatch.setattr(deadline, "_LOOK_S", 0.005)


async def test_an_overdue_block_is_cancelled_and_times_out() -> None:
    begun = time.monotonic()
    with pytest.raises(TimeoutError), within(0.02):
        await asyncio.sleep(30)
    assert time.monotonic() - begun < 10
    await asyncio.sleep(0)  # nothing of it is left behind
    assert _cancelling() == 0


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_a_deadline_that_has_passed_ends_the_block_where_it_first_waits(
    seconds: float,
) -> None:
    reached: list[str] = []

    async def work() -> None:
        with within(seconds):
            reached.append("yes")
            await asyncio.sleep(30)

    with pytest.raises(TimeoutError):
        await work()
    assert reached == ["yes"]


async def test_a_block_in_time_is_left_alone() -> None:
    with within(0.02):
        await asyncio.sleep(0)
    with within(None):
        await asyncio.sleep(0.05)
    assert _cancelling() == 0


async def test_an_error_of_the_block_is_its_own() -> None:
    with pytest.raises(KeyError), within(30):
        raise KeyError


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def work() -> None:
        with within(30):
            await asyncio.sleep(30)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_beside_an_expired_deadline_wins() -> None:
    async def work() -> None:
        with within(0.01):
            await asyncio.sleep(30)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    time.sleep(0.03)  # noqa: ASYNC251  (the timer is due before anything else runs)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_outer_of_two_deadlines_ends_both_blocks() -> None:
    with pytest.raises(TimeoutError), within(0.01), within(30):
        await asyncio.sleep(30)
    with pytest.raises(TimeoutError), within(0.01):
        async with asyncio.timeout(30):
            await asyncio.sleep(30)
    assert _cancelling() == 0


async def test_equal_deadlines_time_out_once() -> None:
    with pytest.raises(TimeoutError), within(0.01), within(0.01):
        await asyncio.sleep(30)
    await asyncio.sleep(0)
    assert _cancelling() == 0


def _cancelling() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()
