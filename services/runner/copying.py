"""Copies the history that a fork begins with: the work of its first turn.

Every step carries the claim, may be repeated, and derives its ids from the thread and the source:
an owner that takes over begins again, and finds what was copied before as it is. Nothing of it is
used before the last step, the commit in the ledger.
"""

from collections.abc import Iterator, Sequence

from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2

from services.runner.authorities import Authorities, answered
from services.runner.turn import Turn, record_of

_OPERATIONS_AT_ONCE = 64
"""Projections travel inside one authority; so many of the largest are 32 MiB."""


async def copy_history(to: Authorities, turn: Turn) -> None:
    """Transcript with journal page by page, then the ledger's commit.

    Raises GiveUp (Stopped, Unanswered, Corrupt) when the claim ends without it.
    """
    fork = turn.claim.fork
    last = transcript_pb2.Entry()
    while last.seq < fork.head.seq:
        request = transcript_pb2.CopyThreadRequest(
            fence=turn.fence, source=fork.thread, source_head=fork.head, seq_after=last.seq
        )
        page = await answered(to.transcript.CopyThread, request)
        for operation_ids in _batches(page.operation_ids):
            await answered(
                to.journal.CopyOperations,
                journal_pb2.CopyOperationsRequest(
                    fence=turn.fence, source=fork.thread, operation_ids=operation_ids
                ),
            )
        last = page.last
    request = turn_pb2.CommitTurnRequest(
        fence=turn.fence,
        turn_id=turn.id,
        round=turn.claim.round,
        kind=turn_pb2.COMMIT_KIND_SETTLED,
        entries=[record_of(last)],
    )
    await answered(to.turns.CommitTurn, request)


def _batches(operation_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(operation_ids), _OPERATIONS_AT_ONCE):
        yield operation_ids[start : start + _OPERATIONS_AT_ONCE]
