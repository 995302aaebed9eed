"""Runners as processes that can be killed: all that one does happens in tasks of its name."""

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, cast

import grpc
from counterfoil.context.v1 import context_pb2_grpc
from counterfoil.files.v1 import artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2_grpc
from counterfoil.ledger.v1 import turn_pb2_grpc
from counterfoil.tools.v1 import tools_pb2_grpc
from counterfoil.transcript.v1 import transcript_pb2_grpc

from services.runner.adapter import MessagesAdapter
from services.runner.authorities import Authorities
from services.runner.driver import Driver
from tests.laws.doubled.network import CURRENT, Line, Net, RunnerWire
from tests.laws.doubled.provider import Provider

_Tasks = set["asyncio.Task[Any]"]


class TaskBook:
    """A task factory that knows whose tasks there are."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Tasks] = {}

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any],
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[Any]":
        actor = CURRENT.get() if context is None else context.get(CURRENT, "")
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context)
        if actor:
            tasks = self._tasks.setdefault(actor, set())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return task

    def of(self, actor: str) -> "list[asyncio.Task[Any]]":
        """Tasks of an actor that are not over."""
        return list(self._tasks.get(actor, ()))


class Runner:
    """One runner process."""

    def __init__(self, name: str, inner: Any, net: Net, provider: Provider, book: TaskBook) -> None:
        self.name = name
        self._net = net
        self._book = book
        self._wire = RunnerWire(inner, lambda: net)
        channel = cast(grpc.aio.Channel, self._wire)
        authorities = Authorities(
            turns=turn_pb2_grpc.TurnServiceStub(channel),
            transcript=transcript_pb2_grpc.TranscriptServiceStub(channel),
            journal=journal_pb2_grpc.JournalServiceStub(channel),
            context=context_pb2_grpc.ContextServiceStub(channel),
            artifacts=artifacts_pb2_grpc.ArtifactServiceStub(channel),
            tools=tools_pb2_grpc.ToolServiceStub(channel),
        )
        self._driver = Driver(authorities, cast(MessagesAdapter, provider), capacity=4)
        context = contextvars.copy_context()
        context.run(CURRENT.set, name)
        loop = asyncio.get_running_loop()
        self._main = loop.create_task(self._driver.run(), context=context)

    @property
    def lines(self) -> list[Line]:
        """Its streams, the newest last."""
        return self._wire.lines

    def kill(self) -> None:
        """It is gone between two instructions; what it sent may still arrive."""
        self._net.dead.add(self.name)
        for line in self.lines:
            line.cut()
        for task in self._book.of(self.name):
            task.cancel()

    def drain(self) -> None:
        """It is asked to stop."""
        self._main.cancel()

    async def gone(self) -> None:
        """Waits until nothing of it is left."""
        await asyncio.gather(*self._book.of(self.name), return_exceptions=True)
