"""What did the model see? Over REST and gRPC, in one process and in many: what it was sent."""

import json
from typing import Any

import pytest
from counterfoil.context.v1 import snapshots_pb2, snapshots_pb2_grpc

from foundation.errors import Failure
from foundation.settings import DEVELOPMENT_KEY
from tests.support.chat import Chat, custom_tool, is_over, message, result
from tests.support.model import script, text, use
from tests.support.system import System

TOOL = custom_tool("decide")
NOBODYS = "00000000000000000000000000"


async def get(chat: Chat, path: str = "", status: int = 200) -> Any:
    answer = await chat.system.http().get(f"/v1/sessions/{chat.id}/context_snapshots{path}")
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer


async def talked(system: System) -> Chat:
    """A session with two turns, the first of which waits for an answer: three requests."""
    chat = await Chat.open(system, tools=[TOOL])
    steps = script({"content": [use("decide", text="a")]}, {"content": [text("decided")]})
    events = await chat.say(steps)
    (use_id,) = events[-1]["stop_reason"]["event_ids"]
    for sent in (result(use_id, "yes"), message("and?")):
        async with chat.stream() as stream:
            await chat.send(sent)
            await stream.until(is_over)
    return chat


async def test_every_request_that_the_model_got_can_be_read(running_system: System) -> None:
    system = running_system
    chat = await talked(system)
    listed = (await get(chat)).json()
    assert listed["next_page"] is None
    snapshots = listed["data"]
    assert [(one["type"], one["outcome"]) for one in snapshots] == [
        ("context_snapshot", "answered")
    ] * 3
    assert [one["round"] for one in snapshots] == [0, 1, 0]
    sent = [asked.body for asked in await system.model.asked()]
    for one, body in zip(snapshots, sent, strict=True):
        assert (await get(chat, f"/{one['id']}/request")).content == body
        whole = (await get(chat, f"/{one['id']}")).json()
        recipe = whole.pop("recipe")
        assert whole == one
        assert recipe["entries"]["last"] == int(one["transcript_head"].partition(":")[0])
        assert [tool["name"] for tool in recipe["tools"]][:1] == ["decide"]
        assert recipe["tools"][0]["owner"] == "client_custom"
        assert recipe["parameters"]["output_tokens_max"] == json.loads(body)["max_tokens"]


async def test_a_conversation_only_grows(running_system: System) -> None:
    chat = await talked(running_system)
    ids = [one["id"] for one in (await get(chat)).json()["data"]]
    for before, after in ((0, 1), (1, 2), (0, 2)):
        found = (await get(chat, f"/{ids[before]}/diff/{ids[after]}")).json()
        assert (found["type"], found["cause"]) == ("context_snapshot_diff", "appended")
        assert found["first_difference"] is None
        assert found["shared_blocks"] == found["blocks"] < found["other_blocks"]


async def test_a_changed_tool_is_the_cause(running_system: System) -> None:
    system = running_system
    chat = await talked(system)
    tools = {"agent": {"tools": [custom_tool("other")]}}
    changed = await system.http().post(f"/v1/sessions/{chat.id}", json=tools)
    assert changed.status_code == 200, changed.text
    await chat.say("again")
    ids = [one["id"] for one in (await get(chat, "?order=desc&limit=2")).json()["data"]]
    found = (await get(chat, f"/{ids[1]}/diff/{ids[0]}")).json()
    assert found["cause"] == "tools"
    assert found["first_difference"] == {"part": "tools", "index": 0, "message": None}


async def test_pages_go_on_where_they_ended(running_system: System) -> None:
    chat = await talked(running_system)
    whole = (await get(chat)).json()["data"]
    first = (await get(chat, "?limit=2")).json()
    rest = (await get(chat, f"?limit=2&page={first['next_page']}")).json()
    assert first["data"] + rest["data"] == whole
    assert rest["next_page"] is None
    await get(chat, f"?limit=2&order=desc&page={first['next_page']}", 400)
    await get(chat, "?limit=0", 400)


async def test_a_session_that_did_not_ask_yet_has_none(running_system: System) -> None:
    chat = await Chat.open(running_system)
    assert (await get(chat)).json() == {"data": [], "next_page": None}


async def test_what_is_not_there_is_404(running_system: System) -> None:
    system = running_system
    chat = await talked(system)
    id = (await get(chat)).json()["data"][0]["id"]
    other = await Chat.open(system)
    for path in ("", "/request", f"/diff/{id}"):
        await get(other, f"/{id}{path}", 404)
        await get(chat, f"/snap_{NOBODYS}{path}", 404)
        await get(chat, f"/none%00{path}", 404)
    await get(chat, f"/{id}/diff/snap_{NOBODYS}", 404)
    for session in (f"sesn_{NOBODYS}", "none", "%00"):
        answer = await system.http().get(f"/v1/sessions/{session}/context_snapshots")
        assert answer.status_code == 404, session
    deleted = await system.http().delete(f"/v1/sessions/{chat.id}")
    assert deleted.status_code == 200
    await get(chat, "", 404)
    await get(chat, f"/{id}/request", 404)


async def test_the_same_over_grpc(running_system: System) -> None:
    system = running_system
    chat = await talked(system)
    channel: Any = system.channel("context", DEVELOPMENT_KEY)
    stub = snapshots_pb2_grpc.ContextSnapshotServiceStub(channel)
    listed = await stub.ListContextSnapshots(
        snapshots_pb2.ListContextSnapshotsRequest(session_id=chat.id)
    )
    ids = [one.id for one in listed.data]
    assert ids == [one["id"] for one in (await get(chat)).json()["data"]]
    named = {"session_id": chat.id, "snapshot_id": ids[0]}
    one = await stub.GetContextSnapshot(snapshots_pb2.GetContextSnapshotRequest(**named))
    assert one.snapshot.recipe.entries.last == 1
    rebuilt = await stub.RebuildContextSnapshot(
        snapshots_pb2.RebuildContextSnapshotRequest(**named)
    )
    assert rebuilt.body == (await get(chat, f"/{ids[0]}/request")).content
    diff = await stub.DiffContextSnapshots(
        snapshots_pb2.DiffContextSnapshotsRequest(**named, other_snapshot_id=ids[1])
    )
    assert diff.diff.cause == snapshots_pb2.CONTEXT_CHANGE_APPENDED
    with pytest.raises(Failure):
        await stub.GetContextSnapshot(snapshots_pb2.GetContextSnapshotRequest(session_id=chat.id))
