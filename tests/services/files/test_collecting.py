"""Two-phase collection: what is condemned, what comes back, what goes, and in which order."""

import asyncio

import pytest

from foundation import failpoints
from tests.services.files.bench import GRACE_MS, A, B, Bench

BODY = b"body " * 100


async def test_only_what_is_old_enough_is_condemned_and_then_deleted(bench: Bench) -> None:
    id = await bench.stage(BODY)
    assert await bench.condemn(id) == 0
    await bench.age()
    assert await bench.condemn(id) == 1
    assert await bench.condemn(id) == 0
    assert await bench.states() == {id: "condemned"}
    assert await bench.read(id) == BODY, "condemned is not gone"
    assert (await bench.sweep(id)).deleted == 0
    await bench.age()
    swept = await bench.sweep(id)
    assert (swept.deleted, swept.objects_removed) == (1, 1)
    assert await bench.states() == {id: "deleted"}
    assert await bench.keys() == []


@pytest.mark.parametrize("how", ["staged", "copied"])
async def test_a_new_reference_revives(bench: Bench, how: str) -> None:
    id = await bench.stage(BODY)
    await bench.age()
    await bench.condemn(id)
    if how == "staged":
        await bench.stage(BODY)
    else:
        await bench.copy(id, source=A, target=A)
    assert await bench.states() == {id: "live"}
    await bench.age(GRACE_MS - 60_000)
    assert await bench.condemn(id) == 0
    assert (await bench.sweep(id)).deleted == 0


async def test_a_deleted_artifact_can_be_staged_again_under_another_name(bench: Bench) -> None:
    id = await bench.stage(BODY)
    before = await bench.keys()
    for step in (bench.condemn, bench.sweep):
        await bench.age()
        await step(id)
    assert await bench.stage(BODY) == id
    after = await bench.keys()
    assert len(after) == 1
    assert after != before, "a removal that comes late must not meet the new bytes"
    assert await bench.read(id) == BODY


async def test_bytes_stay_while_another_session_needs_them(bench: Bench) -> None:
    id = await bench.stage(BODY)
    await bench.copy(id, target=B)
    for step in (bench.condemn, bench.sweep):
        await bench.age()
        await step(id)
    assert await bench.states(A) == {id: "deleted"}
    assert await bench.read(id, B) == BODY


async def test_a_stage_that_was_cut_off_is_collected_like_any_other(bench: Bench) -> None:
    await bench.stage(b"in the same bucket", B)

    async def cut(name: str) -> None:
        if name == "files.put.before":
            raise ConnectionError

    failpoints.install(cut)
    with pytest.raises(ConnectionError):
        await bench.stage(BODY)
    failpoints.install(None)
    (id,) = await bench.states()
    for step in (bench.condemn, bench.sweep):
        await bench.age()
        await step(id)
    assert await bench.states() == {id: "deleted"}
    assert await bench.sql("SELECT count(*) FROM files.blobs") == 1


@pytest.mark.parametrize("point", ["files.sweep", "files.remove", "files.forget"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("finisher", ["sweep", "inventory"])
async def test_a_sweep_that_was_cut_off_is_finished_later(
    bench: Bench, point: str, when: str, finisher: str
) -> None:
    id = await bench.stage(BODY)
    await bench.age()
    await bench.condemn(id)
    await bench.age()

    async def cut(name: str) -> None:
        if name == f"{point}.{when}":
            raise ConnectionError

    failpoints.install(cut)
    with pytest.raises(ConnectionError):
        await bench.sweep(id)
    failpoints.install(None)
    if finisher == "sweep" or (point, when) == ("files.sweep", "before"):
        await bench.sweep(id)
    else:
        await bench.sweep_bytes()
    assert await bench.states() == {id: "deleted"}
    assert await bench.keys() == []
    assert await bench.sql("SELECT count(*) FROM files.blobs") == 0


async def test_the_inventory_removes_bytes_without_a_row_and_no_others(bench: Bench) -> None:
    ids = [await bench.stage(b"%d" % number) for number in range(5)]
    await bench.objects.put("blobs/wrkspc_1/blob_orphan", b"x")
    await bench.objects.put("blobs/wrkspc_0/blob_orphan", b"x")
    await bench.objects.put("somebody/elses", b"x")
    assert await bench.sweep_bytes(limit=2) == 2
    assert await bench.sweep_bytes(limit=2) == 0
    assert len(await bench.keys()) == 6
    assert [await bench.read(id) for id in ids] == [b"%d" % number for number in range(5)]


async def test_whoever_stages_while_it_is_swept_can_read_it_afterwards(bench: Bench) -> None:
    for number in range(20):
        body = b"%d" % number
        id = await bench.stage(body)
        await bench.age()
        await bench.condemn(id)
        await bench.age()
        await asyncio.gather(bench.sweep(id), bench.stage(body), bench.copy_if_there(id))
        assert await bench.read(id) == body
        if id in await bench.states(B):
            assert await bench.read(id, B) == body
