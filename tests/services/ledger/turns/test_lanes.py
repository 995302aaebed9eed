"""Decisions on a kept copy: what is stored is what the session allows at that moment, whoever else
writes, and what waits together is stored together."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator

import pytest
from counterfoil.ledger.v1 import client_events_pb2, turn_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import failpoints
from foundation.errors import Failure
from tests.services.ledger.turns.driver import Ledger, open_ledger
from tests.services.ledger.turns.events import custom_result, message


@pytest.fixture
async def other(dsn: str, ledger: Ledger) -> AsyncGenerator[Ledger]:
    """A second ledger process on the same database."""
    async with open_ledger(dsn) as other:
        yield other


@pytest.fixture
def hits() -> Counter[str]:
    """How often each failpoint was hit."""
    found: Counter[str] = Counter()

    async def count(name: str) -> None:
        found[name] += 1

    failpoints.install(count)
    return found


async def texts(ledger: Ledger) -> list[str]:
    entries = [entry for entry in await ledger.log() if entry["type"] == "user.message"]
    return [entry["content"][0]["text"] for entry in entries if entry["processed_at"] is None]


async def test_a_copy_that_another_process_overtook_is_not_used(
    ledger: Ledger, other: Ledger
) -> None:
    await ledger.create()
    other.thread = ledger.thread
    for round_ in range(3):
        await ledger.send(message(f"ours {round_}"))
        await other.send(message(f"theirs {round_}"))
    said = ["ours 0", "theirs 0", "ours 1", "theirs 1", "ours 2", "theirs 2"]
    assert await texts(ledger) == said
    assert await texts(other) == said


async def test_two_processes_that_write_at_once_lose_nothing(ledger: Ledger, other: Ledger) -> None:
    await ledger.create()
    other.thread = ledger.thread
    await asyncio.gather(
        *(ledger.send(message(f"ours {n}")) for n in range(20)),
        *(other.send(message(f"theirs {n}")) for n in range(20)),
    )
    said = await texts(ledger)
    assert Counter(said) == Counter(f"{who} {n}" for who in ("ours", "theirs") for n in range(20))
    request = turn_pb2.VerifyLogRequest(session_id=ledger.thread.session_id)
    response = await ledger.turns.VerifyLog(request, None)
    assert not response.findings, response


async def test_a_lease_that_another_process_freed_is_gone(ledger: Ledger, other: Ledger) -> None:
    """The copy here says that its owner still holds it."""
    await ledger.create()
    async with ledger.runner() as runner:
        await ledger.send(message("hi"))
        turn = await runner.claimed()
        await other.db.commit_one(
            "test.free", "UPDATE ledger.threads SET lease_stream = NULL WHERE thread_id = $1",
            ledger.thread.thread_id,
        )  # fmt: skip
        with pytest.raises(Failure) as refused:
            await turn.begin()
        assert refused.value.reason == reasons.ERROR_REASON_FENCED
        assert "span.model_request_start" not in await ledger.types()


async def test_what_waits_together_is_stored_together_in_order(
    ledger: Ledger, hits: Counter[str]
) -> None:
    await ledger.create()
    await ledger.send(message("first"))
    hits.clear()
    await asyncio.gather(*(ledger.send(message(f"{n}")) for n in range(60)))
    assert await texts(ledger) == ["first", *(f"{n}" for n in range(60))]
    assert hits["ledger.submit_events.after"] == 60


async def test_one_refused_among_many_refuses_nobody_else(ledger: Ledger) -> None:
    await ledger.create()
    await ledger.send(message("first"))
    wrong = custom_result("sevt_00000000000000000000000000", "x")
    sent: list[client_events_pb2.ClientEvent] = [message("a"), wrong, message("b"), wrong]
    results = await asyncio.gather(*(ledger.send(one) for one in sent), return_exceptions=True)
    assert [isinstance(result, Failure) for result in results] == [False, True, False, True]
    assert await texts(ledger) == ["first", "a", "b"]


async def test_a_caller_who_leaves_takes_nobody_along(ledger: Ledger) -> None:
    await ledger.create()
    await ledger.send(message("first"))
    leaving = [asyncio.create_task(ledger.send(message(f"leaves {n}"))) for n in range(10)]
    staying = [asyncio.create_task(ledger.send(message(f"stays {n}"))) for n in range(10)]
    await asyncio.sleep(0)
    for task in leaving:
        task.cancel()
    await asyncio.gather(*staying)
    await asyncio.gather(*leaving, return_exceptions=True)
    said = await texts(ledger)
    assert [text for text in said if "stays" in text] == [f"stays {n}" for n in range(10)]
    assert len(said) == len(set(said))


async def test_callers_who_leave_together_take_nobody_along(ledger: Ledger) -> None:
    await ledger.create()
    await ledger.send(message("first"))
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hook(name: str) -> None:
        if name == "ledger.submit_events.before":
            reached.set()
            await go_on.wait()

    failpoints.install(hook)
    leaving = [asyncio.create_task(ledger.send(message(f"leaves {n}"))) for n in range(2)]
    await reached.wait()
    staying = asyncio.create_task(ledger.send(message("stays")))
    await asyncio.sleep(0)
    for task in leaving:
        task.cancel()
    await asyncio.wait(leaving)
    go_on.set()
    await staying
    assert await texts(ledger) == ["first", "stays"]


async def test_a_waiting_turn_behind_two_is_found_again(ledger: Ledger) -> None:
    """A copy keeps two turns; when they are over, the rest is read."""
    await ledger.create()
    async with ledger.runner() as runner:
        for n in range(4):
            await ledger.send(message(f"{n}"))
        for n in range(4):
            turn = await runner.claimed()
            assert f'"{n}"'.encode() in turn.claim.input.body
            await turn.begin()
            await turn.say("done")
