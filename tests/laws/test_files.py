"""Files of a whole system: the process dies between row and bytes, and nothing is lost or wrong."""

from pathlib import Path
from typing import Any

import pytest
from counterfoil.files.v1 import artifacts_pb2 as pb
from counterfoil.ledger.v1 import turn_pb2

from foundation.errors import Failure, name_of
from tests.cli.looking import look
from tests.support.chat import Chat, asks, custom_tool, result
from tests.support.model import Model, script, use
from tests.support.platform_tool import PICTURE, PICTURE_TEXT
from tests.support.postgres import SessionPostgres
from tests.support.system import System, system_of
from tests.support.waiting import eventually
from tests.support.zygote import Zygote

BODY = b"canary-91c4 " * 5000
OWNER = {"workspace_id": "wrkspc_1", "session_id": "sesn_1"}


def staged(**more: Any) -> pb.StageArtifactRequest:
    given: dict[str, Any] = {
        **OWNER,
        "operation_id": "op_1",
        "body": BODY,
        "media_type": "text/plain",
        "role": pb.ARTIFACT_ROLE_TOOL_OUTPUT,
        **more,
    }
    return pb.StageArtifactRequest(**given)


QUICK = ("files.put.after", "files.store.before")


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=() if point in QUICK else pytest.mark.full)
        for commit in ("files.stage", "files.put", "files.store")
        for point in (f"{commit}.before", f"{commit}.after")
    ],
)
async def test_a_process_that_dies_while_it_stages_leaves_no_row_without_bytes(
    zygote: Zygote, model: Model, postgres: SessionPostgres, point: str
) -> None:
    async with system_of("embedded", zygote, model, postgres) as system:
        await system.start(f"{point}=kill")
        with pytest.raises(Failure):
            await system.artifacts.StageArtifact(staged(), timeout=20)
        assert await system.died() == "embedded"
        await system.start()
        listed = await system.artifacts.ListArtifacts(pb.ListArtifactsRequest(**OWNER))
        for one in listed.artifacts:
            readable = one.state == pb.ARTIFACT_STATE_LIVE
            await check_read(system, one.artifact.id, readable=readable)
        id = (await system.artifacts.StageArtifact(staged(), timeout=20)).artifact.id
        await check_read(system, id, readable=True)
        swept = await system.artifacts.SweepBytes(pb.SweepBytesRequest(limit=100))
        assert (swept.looked_at, swept.removed) == (1, 0)
        check_logs(system)


async def check_read(system: System, id: str, *, readable: bool) -> None:
    request = pb.ReadArtifactRequest(**OWNER, artifact_id=id)
    if readable:
        assert (await system.artifacts.ReadArtifact(request, timeout=20)).body == BODY
        return
    with pytest.raises(Failure) as failed:
        await system.artifacts.ReadArtifact(request, timeout=20)
    assert name_of(failed.value.reason) == "NOT_FOUND"


def check_logs(system: System) -> None:
    """No content in any log, and none in the store's folder."""
    found = [
        path
        for path in Path(system.folder).rglob("*")
        if path.is_file() and b"canary-91c4" in path.read_bytes()
    ]
    assert found == []


async def test_a_session_without_files_starts_no_object_store(
    zygote: Zygote, model: Model, postgres: SessionPostgres
) -> None:
    async with system_of("embedded", zygote, model, postgres) as system:
        await system.start()
        chat = await Chat.open(system)
        await chat.complete(["hello"])
        await delete(chat)
        assert not (system.folder / "objects").exists()


async def test_a_deleted_session_takes_its_bytes_along(running_system: System) -> None:
    system = running_system
    chat = await Chat.open(system)
    owner = await owner_of(chat)
    await system.artifacts.StageArtifact(staged(**owner), timeout=20)
    inventory = pb.SweepBytesRequest(limit=100)
    assert (await system.artifacts.SweepBytes(inventory)).looked_at == 1
    await delete(chat)
    assert (await system.artifacts.SweepBytes(inventory)).looked_at == 0


async def owner_of(chat: Chat) -> dict[str, str]:
    log = await chat.system.turns.VerifyLog(turn_pb2.VerifyLogRequest(session_id=chat.id))
    return {"workspace_id": log.thread.workspace_id, "session_id": chat.id}


async def delete(chat: Chat) -> None:
    """Deletes the session, and waits until the files service refuses it."""
    artifacts, owner = chat.system.artifacts, await owner_of(chat)
    await chat.client.beta.sessions.delete(chat.id)
    request = pb.CopyArtifactsRequest(
        workspace_id=owner["workspace_id"],
        source_session_id="sesn_none",
        target_session_id=owner["session_id"],
        artifact_ids=["art_none"],
    )

    async def refused() -> bool:
        with pytest.raises(Failure) as failed:
            await artifacts.CopyArtifacts(request)
        return name_of(failed.value.reason) == "DELETED"

    await eventually(refused)


async def test_an_outcome_whose_turn_still_waits_keeps_its_bytes(running_system: System) -> None:
    system = running_system
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    asking = script({"content": [use("note", text=PICTURE_TEXT), use("decide", text="b")]}, "Done.")
    await chat.complete([asking], lambda _: None, early=False, until=asks)
    owner = await owner_of(chat)
    listed = await system.artifacts.ListArtifacts(pb.ListArtifactsRequest(**owner))
    (kept,) = listed.artifacts
    assert kept.state == pb.ARTIFACT_STATE_LIVE
    for _ in range(3):
        done = await look(system, "files", "sweep", "--grace-hours", "0", "-o", "json")
        assert (done.rows[0]["sessions"], done.rows[0]["condemned"]) == (1, 0)
    await chat.complete([asking], lambda event: result(event["id"], "decided"))
    assert PICTURE in (await system.model.asked())[-1].body.decode()
