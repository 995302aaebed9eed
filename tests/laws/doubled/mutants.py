"""The protocol with one rule removed: each of these must make schedules fail."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from counterfoil.journal.v1 import journal_pb2
from counterfoil.types.v1 import reference_pb2

from foundation import operations
from foundation.errors import Failure
from services.journal import nonces
from services.journal.projection import not_run
from services.runner import closing, names
from services.runner.execution import Executor, Interrupted
from services.runner.history import Writer
from services.runner.publisher import Publisher
from services.runner.turn import ANSWER, Turn
from services.tools import execution
from tests.laws.doubled.network import Wire

_FENCED = ("Transcript.", "Journal.", "Context.")
_SAME = reference_pb2.Attempt(epoch=1, number=1)


@contextmanager
def no_fence() -> Generator[None]:
    """Transcript, journal and context take every epoch for the newest."""

    def rewrite(method: str, request: Any) -> None:
        if method.startswith(_FENCED) and "fence" in request.DESCRIPTOR.fields_by_name:
            request.fence.epoch = 1

    with patch.object(Wire, "rewrite", staticmethod(rewrite)):
        yield


@contextmanager
def unanswered_writes_are_passed_over() -> Generator[None]:
    """An interrupted owner takes an append that was not answered for one that did not happen."""
    original = Writer.append

    async def append(self: Any, entry_id: str, kind: int, *args: Any, **kwargs: Any) -> Any:
        turn: Turn = self._turn
        if kind != ANSWER:
            return await original(self, entry_id, kind, *args, **kwargs)  # type: ignore[arg-type]
        stub = self._to.transcript

        class Once:
            """The transcript, whose silence ends the attempt."""

            async def AppendEntry(self, request: Any, **more: Any) -> Any:
                try:
                    return await stub.AppendEntry(request, **more)
                except Failure as failure:
                    if turn.interrupt.is_set() and "not answered" in failure.text:
                        raise Interrupted from failure
                    raise

        authorities, self._to = self._to, _Replaced(self._to, Once())
        try:
            return await original(self, entry_id, kind, *args, **kwargs)  # type: ignore[arg-type]
        finally:
            self._to = authorities

    with patch.object(Writer, "append", append):
        yield


class _Replaced:
    """Authorities with another transcript."""

    def __init__(self, authorities: Any, transcript: Any) -> None:
        self._authorities = authorities
        self.transcript = transcript

    def __getattr__(self, name: str) -> Any:
        return getattr(self._authorities, name)


@contextmanager
def attempt_left_out_of_ids() -> Generator[None]:
    """What depends on an answer is named without its attempt."""
    model, tool = operations.model_operation, names.tool_operation
    span, block = names.span_event, operations.block_event
    with (
        patch.object(
            operations, "model_operation", lambda turn, round_, _: model(turn, round_, _SAME)
        ),
        patch.object(
            names, "tool_operation", lambda turn, round_, _, index: tool(turn, round_, _SAME, index)
        ),
        patch.object(names, "span_event", lambda turn, round_, _: span(turn, round_, _SAME)),
        patch.object(
            operations,
            "block_event",
            lambda turn, round_, _, index: block(turn, round_, _SAME, index),
        ),
    ):
        yield


@contextmanager
def any_nonce_starts() -> Generator[None]:
    """A started operation may be started again, whoever says so."""
    with patch.object(nonces, "check_nonce", lambda operation, digest: None):
        yield


@contextmanager
def derived_nonce() -> Generator[None]:
    """An executor's nonce is the same for every executor."""
    with patch.object(execution.os, "urandom", lambda size: b"n" * size):
        yield


@contextmanager
def close_skipped() -> Generator[None]:
    """Closing takes every call for one that nobody started, without asking the journal."""

    async def close(
        self: Any, scope: journal_pb2.RoundScope, operation_ids: Sequence[str]
    ) -> list[journal_pb2.Operation]:
        projected = not_run()
        projection = journal_pb2.Projection(body=projected.body, digest=projected.digest)
        return [
            journal_pb2.Operation(
                id=id, state=journal_pb2.OPERATION_STATE_ABANDONED, projection=projection
            )
            for id in operation_ids
        ]

    with patch.object(Executor, "close", close):
        yield


@contextmanager
def kept_answers_dropped() -> Generator[None]:
    """Closing closes every call, those that clients answered too."""
    with patch.object(closing, "_kept_answer", lambda call: None):
        yield


@contextmanager
def commits_unpublished() -> Generator[None]:
    """An owner commits without publishing what earlier owners left in the transcript."""

    async def nothing(self: Any) -> None:
        return None

    with patch.object(Publisher, "publish_unrecorded", nothing):
        yield
