"""Copies the history that a fork begins with: the work of its first turn.

Every step carries the claim, may be repeated, and derives its ids from the thread and the source:
an owner that takes over begins again, and finds what was copied before as it is. Nothing of it is
used before the last step, the commit in the ledger.
"""

from collections.abc import Collection, Iterator, Sequence

from counterfoil.context.v1 import context_pb2
from counterfoil.files.v1 import artifacts_pb2
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import reference_pb2

from foundation.errors import Failure
from services.runner.authorities import Authorities, GiveUp, answered
from services.runner.turn import Turn, record_of

_OPERATIONS_AT_ONCE = 64
"""Projections travel inside one authority; so many of the largest are 32 MiB."""

_ARTIFACTS_AT_ONCE = 1000
_TRIES = 4
_READABLE = (artifacts_pb2.ARTIFACT_STATE_LIVE, artifacts_pb2.ARTIFACT_STATE_CONDEMNED)


async def copy_history(to: Authorities, turn: Turn) -> None:
    """Transcript with journal page by page, then artifacts, what the history has lost, and the
    ledger's commit.

    Raises GiveUp (Stopped, Unanswered, Corrupt) when the claim ends without it.
    """
    fork = turn.claim.fork
    last = transcript_pb2.Entry()
    artifacts = set[str]()
    while last.seq < fork.head.seq:
        request = transcript_pb2.CopyThreadRequest(
            fence=turn.fence, source=fork.thread, source_head=fork.head, seq_after=last.seq
        )
        page = await answered(to.transcript.CopyThread, request)
        for operation_ids in _batches(page.operation_ids, _OPERATIONS_AT_ONCE):
            copied = await answered(
                to.journal.CopyOperations,
                journal_pb2.CopyOperationsRequest(
                    fence=turn.fence, source=fork.thread, operation_ids=operation_ids
                ),
            )
            artifacts.update(copied.artifact_ids)
        last = page.last
    await _copy_artifacts(to, turn, artifacts)
    losses = context_pb2.CopyThreadRequest(
        fence=turn.fence,
        source=fork.thread,
        source_head=fork.head,
        head=reference_pb2.Head(seq=last.seq, digest=last.digest),
    )
    await answered(to.context.CopyThread, losses)
    request = turn_pb2.CommitTurnRequest(
        fence=turn.fence,
        turn_id=turn.id,
        round=turn.claim.round,
        kind=turn_pb2.COMMIT_KIND_SETTLED,
        entries=[record_of(last)],
    )
    await answered(to.turns.CommitTurn, request)


async def _copy_artifacts(to: Authorities, turn: Turn, artifact_ids: Collection[str]) -> None:
    """The fork owns what its history refers to. What the source does not have any more is left out:
    what refers to it was replaced, or says so when it is shown."""
    source = turn.claim.fork.thread
    for _ in range(_TRIES):
        kept = await _kept(to, source, artifact_ids) if artifact_ids else []
        try:
            for ids in _batches(kept, _ARTIFACTS_AT_ONCE):
                request = artifacts_pb2.CopyArtifactsRequest(
                    workspace_id=source.workspace_id,
                    source_session_id=source.session_id,
                    target_session_id=turn.thread.session_id,
                    artifact_ids=ids,
                )
                await answered(to.artifacts.CopyArtifacts, request)
        except Failure as failure:
            if failure.reason != reasons.ERROR_REASON_NOT_FOUND:
                raise
            continue  # one was collected in between
        return
    raise GiveUp("the source's artifacts keep changing")


async def _kept(
    to: Authorities, source: reference_pb2.ThreadRef, artifact_ids: Collection[str]
) -> list[str]:
    """Those of the artifacts that the source still has."""
    found: list[str] = []
    after, has_more = "", True
    while has_more:
        request = artifacts_pb2.ListArtifactsRequest(
            workspace_id=source.workspace_id,
            session_id=source.session_id,
            artifact_id_after=after,
        )
        page = await answered(to.artifacts.ListArtifacts, request)
        for owned in page.artifacts:
            after = owned.artifact.id
            if after in artifact_ids and owned.state in _READABLE:
                found.append(after)
        has_more = page.has_more
    return found


def _batches(found: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(found), size):
        yield found[start : start + size]
