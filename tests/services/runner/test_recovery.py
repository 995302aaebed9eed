"""A new owner reads all of what its predecessors left, however many pages that takes."""

from types import SimpleNamespace
from typing import Any, cast

from counterfoil.context.v1 import context_pb2
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1.reference_pb2 import Head, ThreadRef

from services.runner.authorities import Authorities
from services.runner.recovery import Recovery
from services.runner.turn import ANSWER, INPUT, RESULTS, Turn

THREAD = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_1", thread_id="sthr_1")


def entry(seq: int, kind: Any, round_: int) -> transcript_pb2.Entry:
    return transcript_pb2.Entry(
        id=f"tent_{seq}", seq=seq, digest=bytes([seq]), kind=kind, turn_id="turn_1", round=round_
    )


ENTRIES = [
    entry(1, INPUT, 0),
    entry(2, ANSWER, 0),
    entry(3, RESULTS, 0),
    entry(4, ANSWER, 1),
    entry(5, RESULTS, 1),
]
HEAD = Head(seq=5, digest=bytes([5]))


class Transcript:
    """Pages of one entry."""

    async def Fence(self, request: transcript_pb2.FenceRequest, *, timeout: float) -> Any:  # noqa: ASYNC109
        return transcript_pb2.FenceResponse(head=HEAD, entries=ENTRIES[:1], has_more=True)

    async def ListEntries(
        self,
        request: transcript_pb2.ListEntriesRequest,
        *,
        timeout: float,  # noqa: ASYNC109
    ) -> Any:
        page = ENTRIES[request.seq_after : request.seq_after + 1]
        return transcript_pb2.ListEntriesResponse(entries=page, head=HEAD)


class Fenced:
    """Journal and context: nothing is stored there."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def Fence(self, request: Any, *, timeout: float) -> Any:  # noqa: ASYNC109
        return self._answer


async def test_a_takeover_reads_every_page() -> None:
    authorities = SimpleNamespace(
        transcript=Transcript(),
        journal=Fenced(journal_pb2.FenceResponse()),
        context=Fenced(context_pb2.FenceResponse()),
    )
    recorded = Head(seq=2, digest=bytes([2]))
    claim = turn_pb2.Claim(thread=THREAD, turn_id="turn_1", epoch=2, transcript_head=recorded)
    turn = Turn(claim, recorded, may_end_late=False)
    await Recovery(cast(Authorities, authorities), turn).fence()
    assert [one.seq for one in turn.entries.values()] == [1, 2, 3, 4, 5]
    assert [record.seq for record in turn.unrecorded] == [3, 4, 5]
    assert turn.head == HEAD
    assert turn.may_end_late, "a predecessor may have closed calls"
