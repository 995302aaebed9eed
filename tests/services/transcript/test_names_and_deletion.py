"""The id map in all directions, and what a tombstone leaves."""

import pytest
from counterfoil.transcript.v1 import transcript_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation.errors import Failure
from tests.services.transcript.bench import CONTEXT, EMPTY, FOREIGN, THREAD, Bench, answer


async def resolve(bench: Bench, **name: str) -> pb.ResolveMappingResponse:
    request = pb.ResolveMappingRequest(thread=THREAD, **name)
    return await bench.service.ResolveMapping(request, CONTEXT)


@pytest.mark.parametrize(
    "name",
    [
        {"operation_id": "op_tent_2_1"},
        {"event_id": "sevt_tent_2_1"},
        {"provider_tool_use_id": "b"},
    ],
)
async def test_a_call_is_found_by_each_of_its_names(bench: Bench, name: dict[str, str]) -> None:
    head = await bench.fill(1)
    await bench.append("tent_2", head, content=answer("tent_2", "a", "b"))
    found = await resolve(bench, **name)
    assert found.entry_id == "tent_2"
    assert found.mapping == answer("tent_2", "a", "b").mappings[1]
    assert await bench.sql("SELECT count(*) FROM transcript.access WHERE action = 'resolve'") == 1


async def test_of_repeated_provider_ids_the_newest_call_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.transcript.service._PAGE_NAMES", 1)
    head = await bench.fill(1)
    head = (await bench.append("tent_2", head, content=answer("tent_2", "same", "old"))).head
    await bench.append("tent_3", head, content=answer("tent_3", "same"))
    assert (await resolve(bench, provider_tool_use_id="same")).entry_id == "tent_3"
    assert (await resolve(bench, provider_tool_use_id="old")).entry_id == "tent_2"


async def test_unknown_and_foreign_names_are_not_found(bench: Bench) -> None:
    await bench.fill(2)
    requests = [
        pb.ResolveMappingRequest(thread=THREAD, operation_id="op_none"),
        pb.ResolveMappingRequest(thread=THREAD, provider_tool_use_id="none"),
        pb.ResolveMappingRequest(thread=FOREIGN, operation_id="op_tent_2_0"),
    ]
    for request in requests:
        with pytest.raises(Failure) as caught:
            await bench.service.ResolveMapping(request, CONTEXT)
        assert caught.value.reason == reasons.ERROR_REASON_NOT_FOUND


async def test_provider_ids_rest_sealed(bench: Bench) -> None:
    await bench.fill(2)
    stored = await bench.sql("SELECT string_agg(provider_tool_use_id, '') FROM transcript.id_map")
    assert b"toolu" not in stored
    assert b"hi" not in await bench.sql("SELECT string_agg(content, '') FROM transcript.entries")


async def test_a_tombstone_erases_and_still_verifies(bench: Bench) -> None:
    head = await bench.fill(3)
    for _ in range(2):
        await bench.tombstone()
    result = await bench.verify()
    assert result.head == head
    assert [f.seq for f in result.findings] == [1, 2, 3]
    assert all(f.informational for f in result.findings)
    listed = await bench.list()
    assert [e.HasField("content") for e in listed.entries] == [False] * 3
    assert await bench.sql("SELECT count(*) FROM transcript.entries WHERE content IS NOT NULL") == 0


async def test_a_tombstone_refuses_every_later_write(bench: Bench) -> None:
    await bench.tombstone()
    for attempt in (bench.append("tent_1", EMPTY, epoch=2**62), bench.fence(2**62)):
        with pytest.raises(Failure) as caught:
            await attempt
        assert caught.value.reason == reasons.ERROR_REASON_DELETED
    assert await bench.sql("SELECT count(*) FROM transcript.entries") == 0


async def test_tampering_behind_a_tombstone_is_named(bench: Bench) -> None:
    await bench.fill(3)
    await bench.tombstone()
    await bench.tamper("UPDATE transcript.entries SET epoch = 7 WHERE seq = 2")
    assert [f.seq for f in (await bench.verify()).findings if not f.informational] == [2]


async def test_what_was_tampered_with_can_be_deleted(bench: Bench) -> None:
    await bench.fill(3)
    await bench.tamper("UPDATE transcript.heads SET seal = 'x'")
    await bench.tombstone()
    assert await bench.sql("SELECT count(*) FROM transcript.entries WHERE content IS NOT NULL") == 0
