"""What sessions live through while the crash table kills their processes: each scenario completes a
session, checks it whole, and says how often the provider may have been asked for it.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anthropic
from counterfoil.context.v1 import context_pb2
from counterfoil.files.v1 import artifacts_pb2
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import reference_pb2

from foundation.errors import Failure
from foundation.outcomes import MAY_HAVE_RUN_TEXT
from tests.support.chat import (
    INTERRUPT,
    Chat,
    Event,
    asks,
    confirmation,
    custom_tool,
    patiently,
    result,
)
from tests.support.invariants import check_everything
from tests.support.model import begins_with, script, text, use
from tests.support.platform_tool import PICTURE, PICTURE_TEXT
from tests.support.system import System
from tests.support.waiting import eventually

CALLS = [
    text("Four calls."),
    use("decide", text="a"),
    use("note", text="b"),
    use("transfer", text="c"),
    use("decide", text="d"),
]
GATE = script({"content": CALLS}, {"content": [text("All done.")]})
PICTURED = script(
    {"content": [use("note", text=PICTURE_TEXT)]}, {"content": [text("A white dot.")]}
)
CONTINUED = script(
    {"content": [text("First.")], "stop_reason": "pause_turn"},
    {"content": [text("Second.")], "stop_reason": "max_tokens"},
    "Third.",
)
RETRIED = script({"content": [text("At last.")], "error": {"status": 529}, "times": 1})
HELD = script({"content": [text("Slowly.")], "hold": "crash-table"})


def answered(event: Event) -> Event:
    """What the client says to a call."""
    if event["type"] == "agent.tool_use":
        return confirmation(event["id"])
    return result(event["id"], f"decided {event['input']['text']}")


async def parked(system: System) -> int:
    """Custom calls, a platform call and one that asks, answered when the session waits for them;
    a second message is queued meanwhile. Returns how often the provider may be asked."""
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    history = await chat.complete([GATE, "thanks"], answered, early=False)
    await check(chat, history, [GATE, "thanks"])
    return 3


async def early(system: System) -> int:
    """The same, answered as soon as the calls are seen."""
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    history = await chat.complete([GATE, "thanks"], answered)
    await check(chat, history, [GATE, "thanks"])
    return 3


async def pictured(system: System) -> int:
    """A platform call returns an image, which is kept apart from its result."""
    chat = await Chat.open(system)
    history = await chat.complete([PICTURED])
    await check(chat, history, [PICTURED])
    (shown,) = [event["content"] for event in history if event["type"] == "agent.tool_result"]
    assert "image/png, 1 x 1 pixels" in shown[1]["text"]
    asked = (await system.model.asked())[-1]
    assert PICTURE in asked.body.decode()
    return 2


async def unreceived(system: System) -> int:
    """The same, but the tool's outcome dies with its process: the model is told so."""
    chat = await Chat.open(system)
    history = await chat.complete([PICTURED])
    await check(chat, history, [PICTURED])
    (shown,) = [event["content"] for event in history if event["type"] == "agent.tool_result"]
    assert [part["text"] for part in shown] == [MAY_HAVE_RUN_TEXT]
    return 2


async def continued(system: System) -> int:
    """The provider pauses an answer and cuts the next one off."""
    chat = await Chat.open(system)
    history = await chat.complete([CONTINUED])
    await check(chat, history, [CONTINUED])
    said = [event["content"][0]["text"] for event in history if event["type"] == "agent.message"]
    assert said == ["First.", "Second.", "Third."]
    return 3


async def retried(system: System) -> int:
    """The provider fails once, and the turn waits without a lease until it is claimed again."""
    chat = await Chat.open(system)
    history = await chat.complete([RETRIED])
    await check(chat, history, [RETRIED])
    spans = [e["is_error"] for e in history if e["type"] == "span.model_request_end"]
    said = [e["content"][0]["text"] for e in history if e["type"] == "agent.message"]
    assert (said, spans[0], spans[-1]) == (["At last."], True, False)
    shown = Counter(event["type"] for event in history)
    assert shown["session.error"] == shown["session.status_rescheduled"] <= 1
    return 2


async def takeover(system: System) -> int:
    """The runner dies while the provider answers."""
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    talking = asyncio.create_task(chat.complete([HELD]))
    await system.model.held("crash-table")
    await system.kill_runner()
    await system.model.release("crash-table")
    await check(chat, await talking, [HELD])
    return 2


async def ending(system: System) -> int:
    """A parked turn is interrupted, the next message settles it; then the session gets a title, is
    archived, and all is deleted."""
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    await chat.complete([GATE], early=False, until=asks)
    await patiently(system, lambda: interrupted(chat))
    history = await chat.complete([GATE, "thanks"])
    thread = await check(chat, history, [GATE, "thanks"])
    await patiently(system, lambda: chat.client.beta.sessions.update(chat.id, title="Over"))
    await patiently(system, lambda: chat.client.beta.sessions.archive(chat.id))
    last = [event["type"] for event in (await chat.history())[-3:]]
    assert last == [
        "session.updated",
        "session.thread_status_terminated",
        "session.status_terminated",
    ]
    await patiently(system, lambda: deleted(chat))
    await erased(system, thread)
    return 2


async def interrupted(chat: Chat) -> None:
    """Interrupts, unless that was done before the answer was lost."""
    if not any(event["type"] == "user.interrupt" for event in await chat.history()):
        await chat.send(INTERRUPT)


async def deleted(chat: Chat) -> None:
    """Deletes the session, its environment and its agent, as far as they are there."""
    client = chat.client.beta
    for delete, id in (
        (client.sessions.delete, chat.id),
        (client.environments.delete, chat.environment_id),
        (client.agents.archive, chat.agent_id),
    ):
        with suppress(anthropic.NotFoundError):
            await delete(id)


async def erased(system: System, thread: reference_pb2.ThreadRef) -> None:
    """Waits until every authority refuses the thread."""
    stale = reference_pb2.Fence(thread=thread, epoch=1)
    fences: list[Callable[[], Awaitable[object]]] = [
        lambda: system.transcript.Fence(transcript_pb2.FenceRequest(fence=stale, turn_id="turn_1")),
        lambda: system.journal.Fence(journal_pb2.FenceRequest(fence=stale, turn_id="turn_1")),
        lambda: system.context.Fence(context_pb2.FenceRequest(fence=stale, turn_id="turn_1")),
        lambda: system.artifacts.CopyArtifacts(
            artifacts_pb2.CopyArtifactsRequest(
                workspace_id=thread.workspace_id,
                source_session_id="sesn_none",
                target_session_id=thread.session_id,
                artifact_ids=["art_none"],
            )
        ),
    ]
    for fence in fences:
        await eventually(lambda fence=fence: _refused_as_deleted(fence))


async def _refused_as_deleted(call: Callable[[], Awaitable[object]]) -> bool:
    try:
        await call()
    except Failure as failure:
        return failure.reason == reasons.ERROR_REASON_DELETED
    return False


async def check(chat: Chat, history: list[Event], messages: list[str]) -> reference_pb2.ThreadRef:
    """Each message once, and everything that must hold of any session."""
    said = [event["content"][0]["text"] for event in history if event["type"] == "user.message"]
    assert sorted(said) == sorted(messages)
    asked = await check_everything(chat, history)
    begins_with(asked)
    log = await chat.system.turns.VerifyLog(turn_pb2.VerifyLogRequest(session_id=chat.id))
    return log.thread


Scenario = Callable[[System], Awaitable[int]]
