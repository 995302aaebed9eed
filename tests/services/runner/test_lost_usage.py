"""What a failed request had used is counted with the end of its span, whoever ends the turn."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.types.v1 import usage_pb2

from services.runner import faults
from services.runner.adapter.failures import truncated
from services.runner.authorities import Authorities
from services.runner.closing import Closer
from services.runner.execution import Executor
from services.runner.history import Writer
from services.runner.publisher import Publisher
from services.runner.turn import Turn
from tests.services.runner.owner import THREAD


@dataclass
class Interrupted:
    """A ledger that got an interrupt before the owner's commit."""

    commits: list[turn_pb2.CommitTurnRequest] = field(
        default_factory=list[turn_pb2.CommitTurnRequest]
    )

    async def CommitTurn(
        self, request: turn_pb2.CommitTurnRequest, **options: float
    ) -> turn_pb2.CommitTurnResponse:
        self.commits.append(request)
        ends = request.kind == turn_pb2.COMMIT_KIND_INTERRUPTED
        answer = turn_pb2.COMMIT_ANSWER_DONE if ends else turn_pb2.COMMIT_ANSWER_INTERRUPTED
        return turn_pb2.CommitTurnResponse(answer=answer)


@pytest.mark.parametrize("again", [False, True], ids=["no retry is left", "a retry would follow"])
async def test_an_interrupt_that_comes_first_keeps_it(*, again: bool) -> None:
    ledger = Interrupted()
    nothing = cast(Any, None)
    to = Authorities(cast(Any, ledger), nothing, nothing, nothing, nothing, nothing)
    claim = turn_pb2.Claim(thread=THREAD, epoch=1, turn_id="turn_1", round=-1)
    turn = Turn.of(claim, asyncio.Event())
    executor = Executor(to, turn)
    closer = Closer(to, turn, executor, Publisher(to, turn, executor), Writer(to, turn))
    failure = truncated()
    failure.usage = usage_pb2.ModelUsage(input_tokens=7, output_tokens=2)
    error = faults.provider_failed(turn, failure, retrying=again)
    if again:
        await closer.reschedule(error, failure, 1)
    else:
        await closer.fail(error, failure.usage)
    first = turn_pb2.COMMIT_KIND_RESCHEDULED if again else turn_pb2.COMMIT_KIND_DONE
    assert [one.kind for one in ledger.commits] == [first, turn_pb2.COMMIT_KIND_INTERRUPTED]
    assert [one.lost_usage for one in ledger.commits] == [failure.usage] * 2
