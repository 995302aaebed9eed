"""A redacted input or answer loses its content and keeps its place in the chain; nobody without the
key can make lost content look like that."""

import pytest
from counterfoil.transcript.v1 import transcript_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Fence, ThreadRef

from foundation.errors import Failure
from foundation.storage.testing import assert_sql_prepares
from services.transcript import redaction_store
from tests.services.transcript.bench import THREAD, Bench

FORK = ThreadRef(workspace_id="wrkspc_1", session_id="sesn_2", thread_id="sthr_2")


async def redact(bench: Bench, seq: int = 1, thread: ThreadRef = THREAD) -> bool:
    request = pb.RedactEntryRequest(thread=thread, seq=seq, reader="ops", reason="a leaked key")
    return (await bench.service.RedactEntry(request, None)).created


async def filled(bench: Bench) -> pb.Entry:
    """Three entries; the first is an input."""
    await bench.fill()
    (first, *_) = (await bench.list()).entries
    assert first.kind == pb.TRANSCRIPT_ENTRY_KIND_INPUT
    return first


async def refused(bench: Bench, seq: int, thread: ThreadRef = THREAD) -> int:
    with pytest.raises(Failure) as failure:
        await redact(bench, seq, thread)
    return failure.value.reason


async def test_every_statement_prepares(bench: Bench) -> None:
    assert await assert_sql_prepares(redaction_store, bench.dsn) == 6


async def test_the_content_goes_and_the_chain_still_holds(bench: Bench) -> None:
    first = await filled(bench)
    assert await redact(bench)
    assert await bench.sql("SELECT content FROM transcript.entries WHERE seq = 1") is None
    (shown, *rest) = (await bench.list()).entries
    assert not shown.HasField("content")
    assert (shown.id, shown.digest) == (first.id, first.digest)
    assert all(entry.HasField("content") for entry in rest)
    result = await bench.verify()
    assert [(f.seq, f.message, f.informational) for f in result.findings] == [
        (1, "content: redacted", True)
    ]
    assert (await bench.fence(2)).entries[0].digest == first.digest
    assert not await redact(bench)


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE transcript.entries SET content = NULL WHERE seq = 2",
        "UPDATE transcript.entries SET content = NULL WHERE seq = 2; INSERT INTO"
        " transcript.redactions SELECT workspace_id, session_id, thread_id, 2, seal"
        " FROM transcript.redactions",
    ],
)
async def test_content_that_is_lost_otherwise_is_still_found(bench: Bench, tampering: str) -> None:
    await filled(bench)
    await redact(bench)
    await bench.tamper(*tampering.split(";"))
    found = [(f.seq, f.informational) for f in (await bench.verify()).findings]
    assert (2, False) in found
    with pytest.raises(Failure) as failure:
        await bench.list()
    assert failure.value.reason == reasons.ERROR_REASON_CORRUPT


@pytest.mark.parametrize("seq", [1, 2])
async def test_a_copy_of_a_redacted_entry_is_redacted(bench: Bench, seq: int) -> None:
    await filled(bench)
    await redact(bench, seq)
    head = (await bench.list()).head
    await bench.service.CopyThread(
        pb.CopyThreadRequest(
            fence=Fence(thread=FORK, epoch=1), source=THREAD, source_head=head, seq_after=0
        ),
        None,
    )
    for thread in (THREAD, FORK):
        result = await bench.verify(thread)
        assert [(f.seq, f.message, f.informational) for f in result.findings] == [
            (seq, "content: redacted", True)
        ]


async def test_only_inputs_and_answers_that_are_there_are_redacted(bench: Bench) -> None:
    await filled(bench)
    head = (await bench.list()).head
    kind = pb.TRANSCRIPT_ENTRY_KIND_RESULTS
    one = pb.ResultReference(operation_id="op_1", projection_digest=b"d" * 32)
    results = pb.EntryContent(results=[one])
    await bench.append("tent_4", head, content=results, kind=kind)
    assert await refused(bench, 4) == reasons.ERROR_REASON_INVALID_FIELD
    assert await refused(bench, 9) == reasons.ERROR_REASON_NOT_FOUND
    assert await refused(bench, 1, FORK) == reasons.ERROR_REASON_NOT_FOUND
    await bench.tombstone()
    assert await refused(bench, 1) == reasons.ERROR_REASON_DELETED
