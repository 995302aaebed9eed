"""Artifacts: who may read what, and what the bytes are."""

import hashlib
import logging
from typing import Any

import pytest
from counterfoil.files.v1 import artifacts_pb2 as pb

from foundation import failpoints
from foundation.artifacts import artifact_id
from foundation.errors import Failure, name_of
from foundation.objects import Endpoint, ObjectStore, StoreUnavailable
from foundation.storage.testing import assert_schema_matches
from services.files.schema import metadata
from tests.services.files.bench import CONTEXT, GRACE_MS, A, B, Bench, W
from tests.support.objects import SessionObjects
from tests.support.postgres import SessionPostgres

BODY = b"the whole text of a result" * 1000


async def reason(call: Any) -> str:
    with pytest.raises(Failure) as failed:
        await call
    return name_of(failed.value.reason)


async def test_tables_are_those_of_the_migrations(postgres: SessionPostgres) -> None:
    async with postgres.database("files") as dsn:
        await assert_schema_matches("files", metadata, dsn)


async def test_what_was_staged_can_be_read(bench: Bench) -> None:
    sha256 = hashlib.sha256(BODY).digest()
    id = await bench.stage(BODY)
    assert id == artifact_id(W, sha256, "text/plain", pb.ARTIFACT_ROLE_TOOL_OUTPUT)
    request = pb.ReadArtifactRequest(workspace_id=W, session_id=A, artifact_id=id)
    found = await bench.service.ReadArtifact(request, CONTEXT)
    assert found.body == BODY
    assert found.artifact == pb.Artifact(
        id=id,
        media_type="text/plain",
        size_bytes=len(BODY),
        sha256=sha256,
        role=pb.ARTIFACT_ROLE_TOOL_OUTPUT,
    )


async def test_the_same_content_is_stored_once_and_owned_by_each(bench: Bench) -> None:
    ids = {await bench.stage(BODY), await bench.stage(BODY), await bench.stage(BODY, B)}
    assert len(ids) == 1
    assert len(await bench.keys()) == 1
    assert await bench.states(A) == await bench.states(B) == dict.fromkeys(ids, "live")


async def test_another_workspace_stores_its_own_bytes(bench: Bench) -> None:
    id = await bench.stage(BODY)
    other = await bench.stage(BODY, workspace="wrkspc_2")
    assert other != id
    assert len(await bench.keys()) == 2


@pytest.mark.parametrize("session", ["sesn_other", ""])
@pytest.mark.parametrize("workspace", [W, "wrkspc_2"])
async def test_nobody_reads_what_his_session_does_not_own(
    bench: Bench, session: str, workspace: str
) -> None:
    id = await bench.stage(BODY)
    if (session, workspace) != ("", W):
        assert await reason(bench.read(id, session or A, workspace)) == "NOT_FOUND"
    assert await reason(bench.read("art_unknown")) == "NOT_FOUND"


async def test_the_store_shows_neither_content_nor_a_name_that_can_be_guessed(
    bench: Bench,
) -> None:
    await bench.stage(BODY)
    (key,) = await bench.keys()
    stored = await bench.objects.get(key)
    assert BODY[:26] not in stored
    for guess in (hashlib.sha256(BODY).hexdigest(), hashlib.md5(BODY).hexdigest()):
        assert guess not in key


async def test_the_biggest_body_is_stored_whole(bench: Bench) -> None:
    body = bytes(range(256)) * (32 * 1024 * 1024 // 256)
    assert await bench.read(await bench.stage(body)) == body
    assert len(await bench.keys()) == 1


@pytest.mark.parametrize("damage", ["flipped", "cut", "of another", "gone"])
async def test_bytes_that_are_not_the_stored_ones_are_corrupt(bench: Bench, damage: str) -> None:
    id = await bench.stage(BODY)
    (key,) = await bench.keys()
    stored = await bench.objects.get(key)
    await bench.stage(b"another")
    (other,) = set(await bench.keys()) - {key}
    match damage:
        case "flipped":
            await bench.objects.put(key, stored[:-1] + bytes([stored[-1] ^ 1]))
        case "cut":
            await bench.objects.put(key, stored[:20])
        case "of another":
            await bench.objects.put(key, await bench.objects.get(other))
        case _:
            await bench.objects.delete(key)
    assert await reason(bench.read(id)) == "CORRUPT"


async def test_a_digest_that_was_changed_is_corrupt(bench: Bench) -> None:
    id = await bench.stage(BODY)
    await bench.sql("UPDATE files.artifacts SET sha256 = '\\x00'")
    assert await reason(bench.read(id)) == "CORRUPT"


async def test_without_the_store_nothing_is_promised_and_later_the_bytes_are_the_same(
    bench: Bench,
) -> None:
    away = Endpoint("http://127.0.0.1:9", "key", "secret", "bucket", "us-east-1")
    down = Bench.of(bench.dsn, bench.db, ObjectStore.at(away))
    with pytest.raises(StoreUnavailable):
        await down.stage(BODY)
    (id,) = await bench.states()
    assert await bench.states() == {id: "staged"}
    assert await reason(bench.read(id)) == "NOT_FOUND"
    assert await bench.stage(BODY) == id
    with pytest.raises(StoreUnavailable):
        await down.read(id)
    assert await bench.read(id) == BODY


async def test_a_bucket_that_is_not_there_says_nothing_about_its_bytes(
    bench: Bench, objects: SessionObjects
) -> None:
    id = await bench.stage(BODY)
    empty = Bench.of(bench.dsn, bench.db, objects.store())
    with pytest.raises(StoreUnavailable):
        await empty.read(id)


@pytest.mark.parametrize("point", ["files.stage", "files.put", "files.store"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_stage_that_was_cut_off_is_repeated(bench: Bench, point: str, when: str) -> None:
    async def cut(name: str) -> None:
        if name == f"{point}.{when}":
            raise ConnectionError

    failpoints.install(cut)
    with pytest.raises(ConnectionError):
        await bench.stage(BODY)
    failpoints.install(None)
    for id, state in (await bench.states()).items():
        if state == "live":
            assert await bench.read(id) == BODY
        else:
            assert await reason(bench.read(id)) == "NOT_FOUND"
    assert await bench.read(await bench.stage(BODY)) == BODY
    assert len(await bench.keys()) == 1
    assert await bench.sweep_bytes() == 0


async def test_a_copy_is_owned_by_the_target_and_independent(bench: Bench) -> None:
    ids = sorted([await bench.stage(BODY), await bench.stage(b"second")])
    for _ in range(2):
        await bench.copy(*ids)
    assert await bench.states(B) == dict.fromkeys(ids, "live")
    await bench.tombstone(A)
    assert await bench.read(ids[0], B) in (BODY, b"second")
    assert len(await bench.keys()) == 2
    await bench.copy(*ids)  # a repetition needs the source no more


async def test_a_copy_is_all_or_nothing(bench: Bench) -> None:
    id = await bench.stage(BODY)
    assert await reason(bench.copy(id, "art_unknown")) == "NOT_FOUND"
    assert await bench.states(B) == {}
    assert await reason(bench.copy(id, workspace="wrkspc_2")) == "NOT_FOUND"
    await bench.tombstone(B)
    assert await reason(bench.copy(id)) == "DELETED"


async def test_a_deleted_session_has_nothing_and_takes_nothing(bench: Bench) -> None:
    id = await bench.stage(BODY)
    await bench.stage(b"shared")
    shared = await bench.stage(b"shared", B)
    for _ in range(2):
        await bench.tombstone()
    assert await bench.states() == {}
    assert await reason(bench.read(id)) == "NOT_FOUND"
    assert await reason(bench.stage(BODY)) == "DELETED"
    assert await bench.read(shared, B) == b"shared"
    assert len(await bench.keys()) == 1
    assert await bench.condemn(id) == 0
    assert (await bench.sweep(id)).deleted == 0


@pytest.mark.parametrize("point", ["files.tombstone", "files.remove", "files.forget"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_deletion_that_was_cut_off_is_finished_by_the_next(
    bench: Bench, point: str, when: str
) -> None:
    await bench.stage(BODY)

    async def cut(name: str) -> None:
        if name == f"{point}.{when}":
            raise ConnectionError

    failpoints.install(cut)
    with pytest.raises(ConnectionError):
        await bench.tombstone()
    failpoints.install(None)
    await bench.tombstone()
    assert await bench.keys() == []
    assert await bench.sql("SELECT count(*) FROM files.blobs") == 0


async def test_a_session_that_is_deleted_while_its_bytes_travel_leaves_none(bench: Bench) -> None:
    async def erase(name: str) -> None:
        if name == "files.put.after":
            failpoints.install(None)
            await bench.tombstone()

    failpoints.install(erase)
    assert await reason(bench.stage(BODY)) == "DELETED"
    assert await bench.keys() == []


async def test_no_log_line_holds_content_or_credentials(
    bench: Bench, objects: SessionObjects, caplog: pytest.LogCaptureFixture
) -> None:
    canary = b"canary-3f1c0d7e"
    caplog.set_level(logging.DEBUG)
    away = Endpoint("http://127.0.0.1:9", "key", "canary-secret-key", "bucket", "us-east-1")
    down = Bench.of(bench.dsn, bench.db, ObjectStore.at(away))
    with pytest.raises(StoreUnavailable) as failed:
        await down.stage(canary * 100)
    await bench.read(await bench.stage(canary * 100))
    assert objects.server.pid
    for text in (caplog.text, repr(failed.value), repr(away), objects.log()):
        assert "canary" not in text


async def test_time_alone_condemns_nothing(bench: Bench) -> None:
    id = await bench.stage(BODY)
    await bench.age(10 * GRACE_MS)
    assert await bench.states() == {id: "live"}
    assert await bench.read(id) == BODY
