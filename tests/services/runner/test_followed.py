"""The journal is asked for late outcomes unless none can have come."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.types.v1.reference_pb2 import Head, ThreadRef

from services.runner.authorities import Authorities
from services.runner.execution import Executor
from services.runner.followed import Followed
from services.runner.history import Writer
from services.runner.notes import Notes
from services.runner.turn import Turn
from tests.services.runner.owner import CALL, SCOPE, Surroundings


def claim(epoch: int, *, thread: int = 1, seq: int = 3, takeover: bool = False) -> turn_pb2.Claim:
    return turn_pb2.Claim(
        thread=ThreadRef(workspace_id="wrkspc_1", session_id="sesn_1", thread_id=f"sthr_{thread}"),
        epoch=epoch,
        takeover=takeover,
        round=-1,
        transcript_head=Head(seq=seq),
    )


def test_a_thread_without_a_history_has_no_call_that_could_end_late() -> None:
    assert Followed().covers(claim(1, seq=0))
    assert not Followed().covers(claim(1, seq=0, takeover=True))


def test_a_thread_is_followed_from_claim_to_claim() -> None:
    followed = Followed()
    assert not followed.covers(claim(2)), "somebody else had it before"
    followed.ended(claim(1), may_end_late=False)
    assert followed.covers(claim(2))
    assert not followed.covers(claim(3)), "somebody else had it in between"
    assert not followed.covers(claim(2, takeover=True))
    assert not followed.covers(claim(2, thread=2))
    followed.ended(claim(2), may_end_late=False)
    assert followed.covers(claim(3))
    followed.forget()
    assert not followed.covers(claim(3))


def test_a_thread_with_a_call_that_may_end_late_is_not_followed_any_more() -> None:
    followed = Followed()
    followed.ended(claim(1), may_end_late=False)
    followed.ended(claim(2), may_end_late=True)
    assert not followed.covers(claim(3))
    followed.ended(claim(3), may_end_late=True)
    assert not followed.covers(claim(4))


def test_the_threads_that_ended_last_are_kept() -> None:
    followed = Followed(threads_max=2)
    for thread in (1, 2):
        followed.ended(claim(1, thread=thread), may_end_late=False)
    followed.ended(claim(2, thread=1), may_end_late=False)
    followed.ended(claim(1, thread=3), may_end_late=False)
    assert followed.covers(claim(3, thread=1))
    assert not followed.covers(claim(2, thread=2))
    assert followed.covers(claim(2, thread=3))


@pytest.mark.parametrize("may_end_late", [True, False])
async def test_the_journal_is_asked_only_if_a_call_may_end_late(may_end_late: bool) -> None:
    asked: list[journal_pb2.ListLateOutcomesRequest] = []

    async def list_late(
        request: journal_pb2.ListLateOutcomesRequest,
        **_: float,
    ) -> journal_pb2.ListLateOutcomesResponse:
        asked.append(request)
        return journal_pb2.ListLateOutcomesResponse()

    journal = SimpleNamespace(ListLateOutcomes=list_late)
    authorities = cast(Authorities, cast(Any, SimpleNamespace(journal=journal)))
    turn = Turn(claim(1), Head())
    turn.may_end_late = may_end_late
    await Notes(authorities, turn, Writer(authorities, turn)).append()
    assert len(asked) == may_end_late


async def test_closing_a_call_tells_whether_it_may_end_late(owner: Surroundings) -> None:
    """A call that had not started is over; a started one may end after all."""
    owner.turn.may_end_late = False
    executor = Executor(owner.authorities, owner.turn)
    await executor.close(SCOPE, ["op_other"])
    assert not owner.turn.may_end_late
    await owner.prepare()
    await owner.authorities.journal.StartOperation(
        journal_pb2.StartOperationRequest(
            fence=owner.turn.fence,
            operation_id=CALL.operation_id,
            nonce=bytes(32),
            deadline_ms=1000,
        )
    )
    await executor.close(SCOPE, [CALL.operation_id])
    assert owner.turn.may_end_late
