"""`counterfoil files sweep` on a running system."""

from counterfoil.files.v1 import artifacts_pb2 as pb
from counterfoil.ledger.v1 import turn_pb2

from tests.cli.looking import look
from tests.support.chat import Chat
from tests.support.system import System


async def stage(system: System, workspace_id: str, session_id: str) -> None:
    request = pb.StageArtifactRequest(
        workspace_id=workspace_id,
        session_id=session_id,
        operation_id="op_1",
        body=b"nothing refers to this",
        media_type="text/plain",
        role=pb.ARTIFACT_ROLE_TOOL_OUTPUT,
    )
    await system.artifacts.StageArtifact(request, timeout=20)


async def test_it_condemns_then_deletes_and_says_what_it_did(running_system: System) -> None:
    system = running_system
    chat = await Chat.open(system)
    await chat.complete(["hello"])
    log = await system.turns.VerifyLog(turn_pb2.VerifyLogRequest(session_id=chat.id))
    await stage(system, log.thread.workspace_id, chat.id)
    nothing = {"sessions": 0, "condemned": 0, "revived": 0, "deleted": 0, "objects": 0, "failed": 0}
    young = await look(system, "files", "sweep", "-o", "json")
    assert young.rows == [nothing]
    assert young.err == "", "progress is for terminals"
    at_once = ("files", "sweep", "--grace-hours", "0", "-o", "json")
    first, second, third = [await look(system, *at_once) for _ in range(3)]
    assert first.rows == [{**nothing, "sessions": 1, "condemned": 1}]
    assert second.rows == [{**nothing, "sessions": 1, "deleted": 1, "objects": 1}]
    assert third.rows == [nothing]


async def test_what_nobody_can_vouch_for_stays(running_system: System) -> None:
    system = running_system
    await stage(system, "wrkspc_1", "sesn_unknown_to_the_journal")
    for _ in range(2):
        done = await look(system, "files", "sweep", "--grace-hours", "0")
        assert done.code == 1
    request = pb.ListArtifactsRequest(
        workspace_id="wrkspc_1", session_id="sesn_unknown_to_the_journal"
    )
    (owned,) = (await system.artifacts.ListArtifacts(request)).artifacts
    assert owned.state == pb.ARTIFACT_STATE_LIVE
