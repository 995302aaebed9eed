"""A platform call runs once, between Start and Complete, whatever happens around it."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.journal.v1 import journal_pb2_grpc
from counterfoil.tools.v1 import tools_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import reference_pb2

from foundation.errors import Failure
from foundation.rpc.context import CallContext, current, serving
from services.tools import execution
from services.tools.execution import Executor, outcome_of
from services.tools.platform import PlatformTool, PlatformTools, Run, ToolCall, text_outcome


def unavailable() -> Failure:
    return Failure(reasons.ERROR_REASON_UNAVAILABLE, "the database is not reachable")


class JournalInMemory:
    """Keeps the journal's word about one operation: one start, under one nonce."""

    def __init__(self) -> None:
        self.nonce: bytes | None = None
        self.deadline_ms = 0
        self.completed: pb.Outcome | None = None
        self.calls: list[str] = []
        self.failures: list[tuple[str, Failure]] = []
        self.done = asyncio.Event()

    async def StartOperation(self, request: pb.StartOperationRequest) -> Any:
        self._called("start")
        if self.nonce not in (None, request.nonce):
            raise Failure(reasons.ERROR_REASON_OPERATION_REFUSED, "another nonce")
        self.nonce, self.deadline_ms = request.nonce, request.deadline_ms
        return pb.StartOperationResponse()

    async def CompleteOperation(self, request: pb.CompleteOperationRequest) -> Any:
        self._called("complete")
        assert request.nonce == self.nonce
        assert current().deadline is None
        self.completed = request.outcome
        self.done.set()
        return pb.CompleteOperationResponse()

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.failures and self.failures[0][0] == name:
            raise self.failures.pop(0)[1]

    @property
    def text(self) -> str:
        assert self.completed is not None
        return json.loads(self.completed.content)[0]["text"]


@pytest.fixture
def journal() -> JournalInMemory:
    return JournalInMemory()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "_PAUSE_S_FIRST", 0.0)


Make = Callable[..., Executor]


@pytest.fixture
def make(journal: JournalInMemory) -> Make:
    def executor(run: Run, **fields: Any) -> Executor:
        tools = PlatformTools()
        tools.register(PlatformTool("charge", "d", b'{"type":"object"}', run, **fields))
        return Executor(tools, cast(journal_pb2_grpc.JournalServiceStub, journal))

    return executor


def request(version: str = "1") -> tools_pb2.ExecuteRequest:
    thread = reference_pb2.ThreadRef(workspace_id="w", session_id="s", thread_id="t")
    return tools_pb2.ExecuteRequest(
        fence=reference_pb2.Fence(thread=thread, epoch=1),
        operation_id="op_1",
        tool_name="charge",
        tool_version=version,
        input=b'{"n": 1.10}',
    )


class Effects:
    """A tool that counts what it did."""

    def __init__(self) -> None:
        self.seen: list[tuple[bytes, str]] = []

    async def run(self, call: ToolCall) -> pb.Outcome:
        self.seen.append((call.input, call.operation_id))
        return text_outcome("charged")


async def test_the_outcome_is_completed_behind_a_start(
    journal: JournalInMemory, make: Make
) -> None:
    effects = Effects()
    await make(effects.run, deadline_ms=1234).execute(request())
    assert effects.seen == [(b'{"n": 1.10}', "op_1")]
    assert journal.calls == ["start", "complete"]
    assert journal.completed == text_outcome("charged")
    assert journal.deadline_ms == 1234


async def test_a_second_execution_is_refused_and_runs_nothing(
    journal: JournalInMemory, make: Make
) -> None:
    effects = Effects()
    executor = make(effects.run)
    await executor.execute(request())
    with pytest.raises(Failure) as failure:
        await executor.execute(request())
    assert failure.value.reason == reasons.ERROR_REASON_OPERATION_REFUSED
    assert len(effects.seen) == 1


async def test_every_start_has_a_nonce_of_its_own(make: Make, journal: JournalInMemory) -> None:
    nonces: set[bytes | None] = set()
    executor = make(Effects().run)
    for _ in range(3):
        journal.nonce = None
        await executor.execute(request())
        nonces.add(journal.nonce)
    assert len(nonces) == 3
    assert all(nonce and len(nonce) == 32 for nonce in nonces)


async def test_a_lost_answer_of_start_is_asked_for_again_under_the_same_nonce(
    journal: JournalInMemory, make: Make
) -> None:
    effects = Effects()
    journal.failures = [("start", unavailable()), ("complete", unavailable())]
    await make(effects.run).execute(request())
    assert journal.calls == ["start", "start", "complete", "complete"]
    assert len(effects.seen) == 1


async def test_a_journal_that_stays_away_is_not_asked_for_ever(
    journal: JournalInMemory, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "_PAUSE_S_MAX", 0.0)
    journal.failures = [("complete", unavailable())] * 100
    with pytest.raises(Failure) as failure:
        await make(Effects().run).execute(request())
    assert failure.value.reason == reasons.ERROR_REASON_UNAVAILABLE
    assert journal.calls.count("complete") < 20


async def test_a_stale_owner_runs_nothing(journal: JournalInMemory, make: Make) -> None:
    effects = Effects()
    journal.failures = [("start", Failure(reasons.ERROR_REASON_FENCED, "epoch 1 is below 2"))]
    with pytest.raises(Failure) as failure:
        await make(effects.run).execute(request())
    assert failure.value.reason == reasons.ERROR_REASON_FENCED
    assert effects.seen == []


async def test_a_tools_exception_becomes_an_outcome_without_its_text(
    journal: JournalInMemory, make: Make
) -> None:
    async def run(call: ToolCall) -> pb.Outcome:
        raise ValueError("password hunter2")

    await make(run).execute(request())
    assert journal.completed is not None
    assert journal.completed.is_error
    assert "failed" in journal.text
    assert "hunter2" not in journal.text


@pytest.mark.parametrize("content", [b"", b"{}", b'"x"', b"[", b'[{"a":1,"a":2}]'])
async def test_an_outcome_that_is_no_array_is_a_failure_of_the_tool(
    journal: JournalInMemory, make: Make, content: bytes
) -> None:
    async def run(call: ToolCall) -> pb.Outcome:
        return pb.Outcome(content=content)

    await make(run).execute(request())
    assert journal.completed is not None
    assert journal.completed.is_error


async def test_a_tool_that_takes_too_long_is_reported_as_perhaps_done(
    journal: JournalInMemory, make: Make
) -> None:
    async def run(call: ToolCall) -> pb.Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    await make(run, deadline_ms=5).execute(request())
    assert "did not finish within 5 ms" in journal.text
    assert "may have taken effect" in journal.text


async def test_no_first_byte_goes_out_after_the_deadline() -> None:
    effects = Effects()
    tool = PlatformTool("charge", "d", b'{"type":"object"}', effects.run)
    outcome = await outcome_of(
        tool, ToolCall(b"{}", "op_1", reference_pb2.ThreadRef()), time.monotonic()
    )
    assert effects.seen == []
    assert outcome.is_error
    assert b"was not run" in outcome.content


async def test_a_tool_of_another_version_is_reported_as_not_run(
    journal: JournalInMemory, make: Make
) -> None:
    effects = Effects()
    await make(effects.run).execute(request(version="2"))
    assert effects.seen == []
    assert journal.completed is not None
    assert journal.completed.is_error
    assert "not offered here any more" in journal.text


async def test_the_outcome_is_written_although_the_caller_went_away(
    journal: JournalInMemory, make: Make
) -> None:
    running, finish = asyncio.Event(), asyncio.Event()

    async def run(call: ToolCall) -> pb.Outcome:
        running.set()
        await finish.wait()
        return text_outcome("charged")

    executor = make(run)
    with serving(CallContext("req_1", deadline=0.0)):
        caller = asyncio.create_task(executor.execute(request()))
    await running.wait()
    caller.cancel()
    await asyncio.wait({caller})
    assert caller.cancelled()
    finish.set()
    await journal.done.wait()
    assert journal.text == "charged"


async def test_a_process_that_stops_leaves_the_operation_started(
    journal: JournalInMemory, make: Make
) -> None:
    running = asyncio.Event()

    async def run(call: ToolCall) -> pb.Outcome:
        running.set()
        await asyncio.Event().wait()
        raise AssertionError

    executor = make(run)
    caller = asyncio.create_task(executor.execute(request()))
    await running.wait()
    await executor.stop()
    await asyncio.wait({caller})
    assert journal.calls == ["start"]
