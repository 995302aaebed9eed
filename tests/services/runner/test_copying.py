"""What the owner of a fork's first turn does: pages, artifacts, losses, then the commit."""

import asyncio
from dataclasses import dataclass, field, fields
from typing import Any

import pytest
from counterfoil.context.v1 import context_pb2
from counterfoil.files.v1 import artifacts_pb2
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Head, ThreadRef

from foundation.errors import Failure
from services.runner.authorities import Authorities, GiveUp
from services.runner.copying import copy_history
from services.runner.turn import Turn

SOURCE = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_1", thread_id="sthr_1")
FORK = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_2", thread_id="sthr_2")
LIVE = artifacts_pb2.ARTIFACT_STATE_LIVE
CONDEMNED = artifacts_pb2.ARTIFACT_STATE_CONDEMNED
DELETED = artifacts_pb2.ARTIFACT_STATE_DELETED


@dataclass
class Copies:
    """Every authority at once: pages of two entries with 100 operations each."""

    entries: int = 5
    owned: "dict[str, artifacts_pb2.ArtifactState.ValueType]" = field(
        default_factory=lambda: {"art_0": LIVE, "art_1": CONDEMNED, "art_2": DELETED}
    )
    vanishing: int = 0
    calls: list[Any] = field(default_factory=list[Any])

    async def CopyThread(self, request: Any, **_: Any) -> Any:
        self.calls.append(request)
        if isinstance(request, context_pb2.CopyThreadRequest):
            return context_pb2.CopyThreadResponse()
        seq = min(request.seq_after + 2, self.entries)
        last = transcript_pb2.Entry(
            id=f"tent_{seq}",
            seq=seq,
            digest=b"%032d" % seq,
            kind=transcript_pb2.TRANSCRIPT_ENTRY_KIND_ANSWER,
        )
        ids = [f"op_{seq}_{number}" for number in range(100)]
        return transcript_pb2.CopyThreadResponse(last=last, operation_ids=ids)

    async def CopyOperations(self, request: Any, **_: Any) -> Any:
        self.calls.append(request)
        return journal_pb2.CopyOperationsResponse(artifact_ids=["art_0", "art_1", "art_2"])

    async def ListArtifacts(self, request: Any, **_: Any) -> Any:
        self.calls.append(request)
        behind = sorted(id for id in (*self.owned, "art_other") if id > request.artifact_id_after)
        owned = [
            artifacts_pb2.OwnedArtifact(
                artifact=artifacts_pb2.Artifact(id=id), state=self.owned.get(id, LIVE)
            )
            for id in behind[:2]
        ]
        return artifacts_pb2.ListArtifactsResponse(artifacts=owned, has_more=len(behind) > 2)

    async def CopyArtifacts(self, request: Any, **_: Any) -> Any:
        self.calls.append(request)
        if self.vanishing:
            self.vanishing -= 1
            self.owned["art_1"] = DELETED
            raise Failure(reasons.ERROR_REASON_NOT_FOUND, "1 of session sesn_1")
        return artifacts_pb2.CopyArtifactsResponse()

    async def CommitTurn(self, request: Any, **_: Any) -> Any:
        self.calls.append(request)
        return turn_pb2.CommitTurnResponse(answer=turn_pb2.COMMIT_ANSWER_SETTLED)

    def of(self, kind: type) -> list[Any]:
        return [call for call in self.calls if isinstance(call, kind)]


async def run(copies: Copies) -> None:
    claim = turn_pb2.Claim(
        thread=FORK,
        turn_id="turn_fork",
        epoch=3,
        round=-1,
        state=turn_pb2.TURN_STATE_SETTLING,
        fork=turn_pb2.ForkSource(thread=SOURCE, head=Head(seq=copies.entries, digest=b"s" * 32)),
    )
    to: Any = copies
    authorities = Authorities(*[to for _ in fields(Authorities)])
    await copy_history(authorities, Turn.of(claim, asyncio.Event()))


async def test_pages_then_artifacts_then_losses_then_the_commit() -> None:
    copies = Copies()
    await run(copies)
    pages = copies.of(transcript_pb2.CopyThreadRequest)
    assert [page.seq_after for page in pages] == [0, 2, 4]
    assert all((page.source, page.source_head.seq) == (SOURCE, 5) for page in pages)
    sizes = [len(call.operation_ids) for call in copies.of(journal_pb2.CopyOperationsRequest)]
    assert sizes == [64, 36] * 3
    (artifacts,) = copies.of(artifacts_pb2.CopyArtifactsRequest)
    assert list(artifacts.artifact_ids) == ["art_0", "art_1"]
    assert (artifacts.source_session_id, artifacts.target_session_id) == ("sesn_1", "sesn_2")
    (losses,) = copies.of(context_pb2.CopyThreadRequest)
    assert losses.source_head == Head(seq=5, digest=b"s" * 32)
    assert losses.head == Head(seq=5, digest=b"%032d" % 5)
    (commit,) = copies.of(turn_pb2.CommitTurnRequest)
    assert (commit.round, commit.kind) == (-1, turn_pb2.COMMIT_KIND_SETTLED)
    assert [(one.seq, one.entry_id) for one in commit.entries] == [(5, "tent_5")]
    assert [type(call) for call in copies.calls[-3:]] == [
        artifacts_pb2.CopyArtifactsRequest,
        context_pb2.CopyThreadRequest,
        turn_pb2.CommitTurnRequest,
    ]
    writes = [call for call in copies.calls if hasattr(call, "fence")]
    assert all((call.fence.thread, call.fence.epoch) == (FORK, 3) for call in writes)


async def test_an_artifact_that_is_collected_meanwhile_is_left_out() -> None:
    copies = Copies(vanishing=1)
    await run(copies)
    copied = [list(call.artifact_ids) for call in copies.of(artifacts_pb2.CopyArtifactsRequest)]
    assert copied == [["art_0", "art_1"], ["art_0"]]
    assert copies.of(turn_pb2.CommitTurnRequest)


async def test_artifacts_that_keep_vanishing_end_the_claim_without_a_commit() -> None:
    copies = Copies(vanishing=99)
    with pytest.raises(GiveUp):
        await run(copies)
    assert not copies.of(turn_pb2.CommitTurnRequest)
