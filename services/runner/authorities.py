"""The authorities as a turn's owner calls them: every write is repeated until it is answered.

No commit may pass over an unanswered write: an owner repeats it, or gives up its lease, so that a
takeover fences.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from counterfoil.context.v1 import context_pb2_grpc
from counterfoil.files.v1 import artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2_grpc
from counterfoil.ledger.v1 import turn_pb2_grpc
from counterfoil.tools.v1 import tools_pb2_grpc
from counterfoil.transcript.v1 import transcript_pb2_grpc
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure, name_of
from foundation.rpc.status import TRANSPORT

T = TypeVar("T")

_REPEATS = 6
_PAUSE_SECONDS = 0.05
_CALL_SECONDS = 10.0


@dataclass(frozen=True)
class Authorities:
    """Stubs of the services that a turn needs."""

    turns: turn_pb2_grpc.TurnServiceStub
    transcript: transcript_pb2_grpc.TranscriptServiceStub
    journal: journal_pb2_grpc.JournalServiceStub
    context: context_pb2_grpc.ContextServiceStub
    artifacts: artifacts_pb2_grpc.ArtifactServiceStub
    tools: tools_pb2_grpc.ToolServiceStub


class GiveUp(Exception):
    """The turn cannot go on here and now: its lease goes back, and a takeover continues it."""


class Unanswered(GiveUp):
    """A write stayed unanswered; nobody knows whether it happened."""


class Stopped(GiveUp):
    """The claim is not ours any more.

    `epoch_seen` is the epoch that fenced us, 0 if it was not said.
    """

    def __init__(self, why: str, epoch_seen: int = 0) -> None:
        super().__init__(why)
        self.epoch_seen = epoch_seen


class Corrupt(GiveUp):
    """What is stored contradicts what the ledger recorded; nothing more is written."""


class Conflict(Exception):
    """Another write came first: fence and read again."""


_CORRUPT = (
    # A tombstone that the ledger does not know of: a restored backup brought a deleted session
    # back. If it does know, the release is void.
    reasons.ERROR_REASON_DELETED,
    reasons.ERROR_REASON_CORRUPT,
    reasons.ERROR_REASON_DIGEST_MISMATCH,
)
_REPEATED = (
    reasons.ERROR_REASON_UNAVAILABLE,
    reasons.ERROR_REASON_DEADLINE_EXCEEDED,
)


async def answered(call: Callable[..., Awaitable[T]], request: object) -> T:
    """Repeats an idempotent call until it is answered.

    Raises Stopped, Conflict, Corrupt, or Unanswered after bounded repeats; other failures as they
    are.
    """
    pause = _PAUSE_SECONDS
    for call_number in range(1, _REPEATS + 1):
        try:
            return await call(request, timeout=_CALL_SECONDS)
        except Failure as failure:
            if _may_be_repeated(failure) and call_number < _REPEATS:
                await asyncio.sleep(pause)
                pause *= 2
                continue
            raise _classified(failure) from failure
    raise AssertionError("unreachable")


def _may_be_repeated(failure: Failure) -> bool:
    """Whether a repeat may fare better: the other side is away, or the transport failed us."""
    return failure.reason in _REPEATED or TRANSPORT in failure.metadata


def _classified(failure: Failure) -> Exception:
    if failure.reason == reasons.ERROR_REASON_FENCED:
        return Stopped(failure.text, int(failure.metadata.get("epoch_max", "0")))
    if failure.reason == reasons.ERROR_REASON_HEAD_MISMATCH:
        return Conflict(failure.text)
    if failure.reason in _CORRUPT:
        return Corrupt(f"{name_of(failure.reason)}: {failure.text}")
    if failure.reason in _REPEATED:
        return Unanswered(failure.text)
    return failure
