"""What a collector must leave alone: every artifact that an outcome of the session refers to."""

import json

import asyncpg
import pytest
from counterfoil.journal.v1 import journal_pb2 as pb
from counterfoil.types.v1.reference_pb2 import ThreadRef

from foundation.errors import Failure, name_of
from services.journal import references
from tests.services.journal.bench import CONTEXT, FOREIGN, RING, THREAD, Bench, new, text

OTHER_LANE = ThreadRef(
    workspace_id=THREAD.workspace_id, session_id=THREAD.session_id, thread_id="sthr_2"
)


async def collect(bench: Bench, thread: ThreadRef = THREAD) -> list[str]:
    request = pb.CollectReferencesRequest(
        workspace_id=thread.workspace_id, session_id=thread.session_id
    )
    return list((await bench.service.CollectReferences(request, CONTEXT)).artifact_ids)


async def refused(bench: Bench, thread: ThreadRef = THREAD) -> str:
    with pytest.raises(Failure) as failed:
        await collect(bench, thread)
    return name_of(failed.value.reason)


async def outcome(bench: Bench, operation_id: str, *ids: str, thread: ThreadRef = THREAD) -> None:
    """A completed operation whose projection refers to these."""
    await bench.prepare(new(operation_id), thread=thread)
    await bench.start(operation_id, thread=thread)
    await bench.complete(text("kept"), operation_id, thread=thread)
    parts = [
        {"artifact_id": id, "kind": "artifact", "media_type": "text/plain", "sha256": "00" * 32}
        | {"size": 1}
        for id in ids
    ]
    body = json.dumps({"kind": "content", "parts": parts, "v": 1}, separators=(",", ":"))
    await replace(bench, operation_id, body.encode(), thread)


async def replace(bench: Bench, operation_id: str, body: bytes, thread: ThreadRef = THREAD) -> None:
    key = (thread.workspace_id, thread.session_id, thread.thread_id)
    sealed = RING.seal(body, "outcomes.projection", *key, operation_id)
    await tamper(
        bench,
        f"UPDATE journal.outcomes SET projection = '\\x{sealed.hex()}'"
        f" WHERE operation_id = '{operation_id}' AND role = 2",
    )


async def tamper(bench: Bench, statement: str) -> None:
    """Run SQL as somebody who may switch triggers off."""
    connection = await asyncpg.connect(bench.dsn)
    try:
        await connection.execute("SET session_replication_role = replica")
        await connection.execute(statement)
    finally:
        await connection.close()


async def test_every_outcome_of_every_lane_counts_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "_PAGE", 1)
    await outcome(bench, "op_1", "art_b", "art_a")
    await outcome(bench, "op_2", "art_b")
    await outcome(bench, "op_3", "art_c", thread=OTHER_LANE)
    await bench.prepare(new("op_4"))
    await bench.close("op_4")
    assert await collect(bench) == ["art_a", "art_b", "art_c"]


async def test_outcomes_without_artifacts_refer_to_nothing(bench: Bench) -> None:
    await bench.prepare(new("op_1"))
    assert await collect(bench) == []


async def test_what_cannot_be_known_is_refused(bench: Bench) -> None:
    assert await refused(bench) == "NOT_FOUND"
    await outcome(bench, "op_1", "art_a")
    assert await refused(bench, FOREIGN) == "NOT_FOUND"
    await replace(bench, "op_1", b'{"v":99,"kind":"hologram"}')
    assert await refused(bench) == "CORRUPT"
    await tamper(bench, "UPDATE journal.outcomes SET projection = '\\x01' WHERE role = 2")
    assert await refused(bench) == "CORRUPT"
    await bench.tombstone()
    assert await refused(bench) == "DELETED"
