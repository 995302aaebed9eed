"""Systems whose provider has a small window, and sessions of random size on them."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from counterfoil.context.v1 import context_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.types.v1.reference_pb2 import ThreadRef

from tests.offline_model.pictures import image, jpeg
from tests.support.chat import Chat, Event, asks, is_idle, message
from tests.support.invariants import check_chains, check_history
from tests.support.model import Asked, Model, script, text, use
from tests.support.postgres import SessionPostgres
from tests.support.system import Mode, System, system_of
from tests.support.zygote import Zygote

COMPACTED = "agent.thread_context_compacted"
WORDS = ("the", "order", "of", "a", "customer", "was", "sent", "to", "another", "address")


OUTPUT = 8_192
"""What the model `offline` may write, of its window too."""


@asynccontextmanager
async def with_window(
    tokens: int,
    zygote: Zygote,
    model: Model,
    postgres: SessionPostgres,
    mode: Mode = "embedded",
    **environment: str,
) -> AsyncGenerator[System]:
    """A running system that knows how small its provider's window is."""
    told = {"COUNTERFOIL_MODEL_WINDOW_TOKENS": str(tokens), **environment}
    async with system_of(mode, zygote, model, postgres, **told) as system:
        await system.start()
        await model.window(tokens)
        yield system


def words(random: Random, length: int) -> str:
    """A text of about so many characters."""
    found: list[str] = []
    while length > 0:
        found.append(random.choice(WORDS))
        length -= len(found[-1]) + 1
    return " ".join(found) or "."


def size(random: Random, window: int) -> int:
    """Mostly small, sometimes a good part of the window."""
    return min(int(random.paretovariate(1.1) * window / 40), window)


def step(random: Random, window: int, rounds: int) -> dict[str, Any]:
    """What the model says when so many rounds of calls are left."""
    said = [text(words(random, size(random, window) // 4))]
    calls = [use("record", text="x") for _ in range(random.randint(1, 3) if rounds else 0)]
    return {"content": [*said, *calls]}


def answered(use_id: str, *texts: str) -> Event:
    """A result of several texts."""
    return {
        "type": "user.custom_tool_result",
        "custom_tool_use_id": use_id,
        "content": [{"type": "text", "text": one} for one in texts],
    }


async def play(chat: Chat, random: Random, window: int, *, turns: int) -> list[Event]:
    """Turns with rounds of calls, whose results carry what the model says next; how each ended."""
    ends: list[Event] = []
    async with chat.stream() as stream:
        for _ in range(turns):
            rounds = random.randint(0, 6)
            said = script(step(random, window, rounds))
            await chat.send(message(said), *([] if rounds else [message(words(random, 300))]))
            while asks(end := (await stream.until(is_idle))[-1]):
                rounds = max(rounds - 1, 0)  # a script may be read twice, from a summary of it
                *others, last = end["stop_reason"]["event_ids"]
                next_ = script(step(random, window, rounds))
                given = [answered(one, words(random, size(random, window))) for one in others]
                await chat.send(*given, answered(last, next_, words(random, size(random, window))))
            ends.append(end)
    return ends


async def checkpoints(chat: Chat) -> list[str]:
    """The checkpoints that requests were made with, in the order of their first request."""
    log = await chat.system.turns.VerifyLog(turn_pb2.VerifyLogRequest(session_id=chat.id))
    request = context_pb2.ListSnapshotsRequest(thread=log.thread)
    found = (await chat.system.context.ListSnapshots(request)).snapshots
    return list(dict.fromkeys(one.checkpoint_id for one in found if one.checkpoint_id))


def errors(events: list[Event]) -> list[str]:
    """Types of the errors that a session told."""
    return [event["error"]["type"] for event in events if event["type"] == "session.error"]


def room_left(asked: Asked, window: int) -> int:
    """Tokens of the window that a request and its answer do not need."""
    return window - asked.record["input_tokens"] - json.loads(asked.body)["max_tokens"]


def picture(width: int = 1000, height: int = 1000, length: int = 0) -> Event:
    """An image block; only its header is an image, and `length` bytes are its least size."""
    return image(jpeg(width, height).ljust(length, b"\0"), "image/jpeg")


def user(*content: Event | str) -> Event:
    """A message of these blocks; bare texts are text blocks."""
    blocks = [text(one) if isinstance(one, str) else one for one in content]
    return {"type": "user.message", "content": blocks}


async def tell(chat: Chat, event: Event) -> list[Event]:
    """Sends an event; what comes until the session waits."""
    async with chat.stream() as stream:
        await chat.send(event)
        return await stream.until(is_idle)


async def newest(chat: Chat, before: int) -> list[Asked]:
    """What the provider was asked behind the first `before` requests."""
    return (await chat.system.model.asked())[before:]


def statuses(asked: list[Asked]) -> list[int]:
    """How the provider answered."""
    return [one.record["status"] for one in asked]


async def check_overflows(chat: Chat) -> None:
    """What holds of every session."""
    check_history(await chat.history())
    await check_requests(chat, await check_chains(chat))


async def check_requests(chat: Chat, thread: ThreadRef) -> None:
    """Every request can be rebuilt, the refused ones too."""
    request = context_pb2.ListSnapshotsRequest(thread=thread)
    snapshots = (await chat.system.context.ListSnapshots(request)).snapshots
    asked = {one.body for one in await chat.system.model.asked()}
    for snapshot in snapshots:
        rebuild = context_pb2.RebuildRequest(thread=thread, snapshot_id=snapshot.id)
        asked.discard((await chat.system.context.Rebuild(rebuild)).body)
    assert asked == set()


async def used(chat: Chat) -> int:
    """Input tokens of the newest request."""
    return (await chat.system.model.asked())[-1].record["input_tokens"]
