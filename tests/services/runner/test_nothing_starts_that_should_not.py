"""First bytes: none without a stream, after an interrupt, or without an end; no silent loops."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import pytest
from counterfoil.journal.v1 import journal_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from services.runner import model_calls
from services.runner.adapter import Answer, MessagesAdapter, Piece, ProviderFailure
from services.runner.asking import Asker
from services.runner.authorities import GiveUp, Stopped, Unanswered
from services.runner.execution import Executor, Interrupted
from services.runner.history import Writer
from tests.services.runner.owner import CALL, SCOPE, Surroundings

PREPARED = journal_pb2.OPERATION_STATE_PREPARED
AMBIGUOUS = journal_pb2.OPERATION_STATE_AMBIGUOUS
STARTED = journal_pb2.OPERATION_STATE_STARTED


class Provider:
    """A model that is asked and does not answer."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.on_cancel: Callable[[], None] = lambda: None

    async def call(
        self,
        body: bytes,
        *,
        stream: bool,
        on_piece: Callable[[Piece], None],
        betas: Sequence[str] = (),
    ) -> Answer:
        self.asked.set()
        try:
            return await asyncio.Future[Answer]()
        finally:
            self.on_cancel()


class Attached(asyncio.Event):
    """Attached at first; tells when somebody waits to be attached again."""

    def __init__(self) -> None:
        super().__init__()
        self.set()
        self.awaited = asyncio.Event()

    async def wait(self) -> Literal[True]:
        if not self.is_set():
            self.awaited.set()
        return await super().wait()


def asker_of(owner: Surroundings) -> tuple[Asker, Provider]:
    provider = Provider()
    writer = Writer(owner.authorities, owner.turn)
    adapter = cast(MessagesAdapter, cast(Any, provider))
    return Asker(owner.authorities, adapter, owner.turn, writer), provider


def run(owner: Surroundings) -> "asyncio.Task[object]":
    executor = Executor(owner.authorities, owner.turn)
    return asyncio.create_task(executor.run_all(SCOPE, [(CALL, b"{}", "1")]))


def failing(reason: "reasons.ErrorReason.ValueType") -> Callable[[], None]:
    def fail() -> None:
        raise Failure(reason, "no")

    return fail


@pytest.mark.parametrize(
    "reason", [reasons.ERROR_REASON_INTERNAL, reasons.ERROR_REASON_INVALID_FIELD]
)
async def test_a_call_that_can_never_be_started_counts_as_a_failed_claim(
    owner: Surroundings, reason: "reasons.ErrorReason.ValueType"
) -> None:
    await owner.prepare()
    owner.tools.on_execute = failing(reason)
    with pytest.raises(GiveUp) as caught:
        await run(owner)
    assert not isinstance(caught.value, Unanswered)
    assert reasons.ErrorReason.Name(reason).removeprefix("ERROR_REASON_") in str(caught.value)
    assert [o.state for o in await owner.operations()] == [PREPARED]


async def test_a_call_whose_executor_is_away_waits_for_a_later_claim(owner: Surroundings) -> None:
    await owner.prepare()
    owner.tools.on_execute = failing(reasons.ERROR_REASON_UNAVAILABLE)
    with pytest.raises(Unanswered):
        await run(owner)


async def test_an_execution_gets_the_tools_own_time_and_a_margin(owner: Surroundings) -> None:
    await owner.prepare()
    with pytest.raises(Unanswered):
        await run(owner)
    assert owner.tools.seconds_given == [12]


async def test_nothing_is_executed_after_an_interrupt(owner: Surroundings) -> None:
    await owner.prepare()
    owner.turn.interrupt.set()
    with pytest.raises(Interrupted):
        await run(owner)
    assert owner.tools.seconds_given == []


async def test_a_stream_lost_while_the_writes_are_answered_sends_no_first_byte(
    owner: Surroundings,
) -> None:
    asker, provider = asker_of(owner)
    waiting = owner.turn.attached = Attached()
    owner.turns.on_begin = waiting.clear
    asks = asyncio.create_task(asker.ask(0))
    await asyncio.wait_for(waiting.awaited.wait(), 10)
    assert [o.state for o in await owner.operations()] == [AMBIGUOUS]
    assert not provider.asked.is_set()
    owner.turns.on_begin = lambda: None
    waiting.set()
    await asyncio.wait_for(provider.asked.wait(), 10)
    assert [attempt.number for attempt in owner.turns.begun] == [1, 2]
    assert [o.state for o in await owner.operations()] == [AMBIGUOUS, STARTED]
    asks.cancel()


@pytest.mark.parametrize("last_words", [None, OSError("the connection is gone")])
async def test_an_interrupt_ends_the_provider_call_whatever_its_end_says(
    owner: Surroundings, last_words: OSError | None
) -> None:
    asker, provider = asker_of(owner)

    def interrupted_again() -> None:
        owner.turn.interrupt.set()
        if last_words is not None:
            raise last_words

    provider.on_cancel = interrupted_again
    asks = asyncio.create_task(asker.ask(0))
    await asyncio.wait_for(provider.asked.wait(), 10)
    owner.turn.interrupt.set()
    with pytest.raises(Interrupted):
        await asyncio.wait_for(asks, 10)
    assert [o.state for o in await owner.operations()] == [AMBIGUOUS]


async def test_no_first_byte_goes_out_after_an_interrupt(owner: Surroundings) -> None:
    asker, provider = asker_of(owner)
    owner.turns.on_begin = owner.turn.interrupt.set
    with pytest.raises(Interrupted):
        await asker.ask(0)
    assert not provider.asked.is_set()
    assert [o.state for o in await owner.operations()] == [AMBIGUOUS]


async def test_a_refused_attempt_waits_for_the_start_of_its_call(owner: Surroundings) -> None:
    """No commit over an unanswered write: also the write beside the one that failed is awaited."""
    asker, provider = asker_of(owner)
    owner.turns.on_begin = failing(reasons.ERROR_REASON_FENCED)
    with pytest.raises(Stopped):
        await asker.ask(0)
    assert not provider.asked.is_set()
    assert [o.state for o in await owner.operations()] == [STARTED]


async def test_an_answer_that_never_ends_is_a_failure(
    owner: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_calls, "SECONDS_MAX", 1)
    asker, provider = asker_of(owner)
    with pytest.raises(ProviderFailure) as caught:
        await asker.ask(0)
    assert provider.asked.is_set()
    assert (caught.value.kind, caught.value.retryable) == ("timeout", True)
    assert [o.state for o in await owner.operations()] == [journal_pb2.OPERATION_STATE_COMPLETED]
