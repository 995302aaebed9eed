"""Runs one platform call between the journal's Start and Complete, exactly once.

The nonce lives in this call's memory only, so that no other process can complete or restart what
this one started. The call runs in a task of its own: once it is started its outcome is written,
whether or not the caller still waits. A process that ends in between leaves the operation started,
which the journal's next owner treats as ambiguous.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog
from counterfoil.journal.v1 import journal_pb2, journal_pb2_grpc
from counterfoil.tools.v1 import tools_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import telemetry
from foundation.errors import Failure
from foundation.json import InvalidJson, parse
from foundation.rpc.context import CallContext, current, serving
from services.tools.platform import PlatformTool, PlatformTools, ToolCall, text_outcome

Response = TypeVar("Response")

_NONCE_BYTES = 32
_UNKNOWN_TOOL_DEADLINE_MS = 10_000
_REPEATS_MAX = 12
_PAUSE_S_FIRST = 0.05
_PAUSE_S_MAX = 5.0

_log = structlog.get_logger("counterfoil.tools")


class Executor:
    """Executes platform calls of one process."""

    def __init__(self, tools: PlatformTools, journal: journal_pb2_grpc.JournalServiceStub) -> None:
        self._tools = tools
        self._journal = journal
        self._running: set[asyncio.Task[None]] = set()

    async def execute(self, request: tools_pb2.ExecuteRequest) -> None:
        """Run the call; returns when its outcome is committed.

        Raises what the journal refused (OPERATION_REFUSED, FENCED, DELETED), and UNAVAILABLE when
        it cannot be reached for minutes. A cancelled caller cancels nothing.
        """
        task = asyncio.create_task(self._detached(request), name=f"tool {request.operation_id}")
        self._running.add(task)
        task.add_done_callback(self._forget)
        await asyncio.shield(task)

    async def stop(self) -> None:
        """Cut off what runs; its operations stay started."""
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Nobody may be waiting any more. The error holds no content.
            _log.warning("platform call not completed", call=task.get_name(), error=repr(error))

    async def _detached(self, request: tools_pb2.ExecuteRequest) -> None:
        # The caller's deadline must not cut off the commit of what was done.
        with serving(CallContext(current().request_id)):
            attributes = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": request.tool_name,
                "gen_ai.tool.call.id": request.operation_id,
                "gen_ai.tool.type": "function",
                "gen_ai.conversation.id": request.fence.thread.session_id,
            }
            with telemetry.span(f"execute_tool {request.tool_name}", attributes=attributes):
                await self._run(request)

    async def _run(self, request: tools_pb2.ExecuteRequest) -> None:
        tool = self._tools.find(request.tool_name, request.tool_version)
        deadline_ms = _UNKNOWN_TOOL_DEADLINE_MS if tool is None else tool.deadline_ms
        deadline = time.monotonic() + deadline_ms / 1000
        nonce = os.urandom(_NONCE_BYTES)
        start = journal_pb2.StartOperationRequest(
            fence=request.fence,
            operation_id=request.operation_id,
            nonce=nonce,
            deadline_ms=deadline_ms,
        )
        await _answered(lambda: self._journal.StartOperation(start), until=deadline)
        if tool is None:
            outcome = _not_offered(request.tool_name, request.tool_version)
        else:
            call = ToolCall(request.input, request.operation_id, request.fence.thread)
            outcome = await outcome_of(tool, call, deadline)
        await self._complete(request, nonce, outcome)

    async def _complete(
        self, request: tools_pb2.ExecuteRequest, nonce: bytes, outcome: journal_pb2.Outcome
    ) -> None:
        complete = journal_pb2.CompleteOperationRequest(
            thread=request.fence.thread,
            operation_id=request.operation_id,
            nonce=nonce,
            outcome=outcome,
        )
        await _answered(lambda: self._journal.CompleteOperation(complete))


async def outcome_of(tool: PlatformTool, call: ToolCall, deadline: float) -> journal_pb2.Outcome:
    """Run the tool; every way in which it can fail is an outcome too.

    `deadline` is monotonic seconds: no first byte goes out after it. Raises only CancelledError.
    """
    if time.monotonic() >= deadline:
        return text_outcome(
            "The tool was not run: its deadline passed before it could start.", is_error=True
        )
    limit = asyncio.timeout(deadline - time.monotonic())
    try:
        async with limit:
            outcome = await tool.run(call)
        _check(outcome)
        return outcome
    except Exception as error:
        # A tool's error may hold anything, secrets too: only its class leaves this function.
        _log.warning(
            "platform tool failed",
            tool=tool.name,
            operation_id=call.operation_id,
            error=type(error).__name__,
        )
    what = f"did not finish within {tool.deadline_ms} ms" if limit.expired() else "failed"
    return text_outcome(f"The tool {what}. It may have taken effect.", is_error=True)


def _check(outcome: journal_pb2.Outcome) -> None:
    try:
        content: Any = parse(outcome.content)
    except InvalidJson as error:
        raise TypeError("a tool's content must be JSON") from error
    if not isinstance(content, list):
        raise TypeError("a tool's content must be an array of content blocks")


def _not_offered(name: str, version: str) -> journal_pb2.Outcome:
    return text_outcome(
        f"The tool {name} (version {version}) is not offered here any more. It was not run.",
        is_error=True,
    )


async def _answered(
    call: Callable[[], Awaitable[Response]], *, until: float | None = None
) -> Response:
    """Repeat a call while the journal is UNAVAILABLE: a bounded number of times, and not after
    `until` (monotonic seconds). The same nonce makes each repeat the same call.
    """
    pause = _PAUSE_S_FIRST
    for _ in range(_REPEATS_MAX):
        try:
            return await call()
        except Failure as failure:
            if failure.reason not in _MAY_BE_REPEATED:
                raise
            if until is not None and time.monotonic() + pause >= until:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 2, _PAUSE_S_MAX)
    return await call()


_MAY_BE_REPEATED = (reasons.ERROR_REASON_UNAVAILABLE, reasons.ERROR_REASON_DEADLINE_EXCEEDED)
