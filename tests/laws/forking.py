"""Sessions with a past worth forking, and what their models are asked."""

from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import reference_pb2

from tests.support.chat import (
    Chat,
    Event,
    confirmation,
    custom_tool,
    is_idle,
    is_over,
    message,
    result,
)
from tests.support.model import Asked, script, text, use
from tests.support.system import System
from tests.support.waiting import eventually

CALLS = script(
    {"content": [use("decide", text="a"), use("note", text="b"), use("transfer", text="c")]},
    {"content": [text("Called.")]},
)
CONTINUED = script(
    {"content": [text("One,")], "stop_reason": "max_tokens"}, {"content": [text("two.")]}
)
PLAIN = script({"content": [text("Plain.")]})
TURNS = (PLAIN, CALLS, CONTINUED, CALLS)
PROBE = script({"content": [text("Probed.")]})


def answered(event: Event) -> Event:
    """What the client says to a call."""
    if event["type"] == "agent.tool_use":
        return confirmation(event["id"])
    return result(event["id"], f"decided {event['input']['text']}")


async def talk(system: System, *texts: str) -> tuple[Chat, list[Event]]:
    """A session that had these turns, and the event at the end of each."""
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    ends: list[Event] = []
    for number, said in enumerate(texts):
        # A script stands in its message: equal ones are told apart.
        await turn(chat, said + " " * number)
        ends.append((await chat.history())[-1])
    return chat, ends


async def turn(chat: Chat, said: str) -> None:
    """One more turn, its calls answered."""
    async with chat.stream() as stream:
        await chat.send(message(said))
        while True:
            events = await stream.until(is_idle)
            if is_over(events[-1]):
                return
            waiting = events[-1]["stop_reason"]["event_ids"]
            uses = [event for event in events if event["id"] in waiting]
            await chat.send(*map(answered, uses))


async def request_of(chat: Chat, said: str) -> Asked:
    """The request with which a session's model is asked next, when it is told this."""
    before = len(await chat.system.model.asked())
    await turn(chat, said)
    return (await chat.system.model.asked())[before]


async def erased(chat: Chat) -> None:
    """Every authority has erased the deleted session."""
    thread = await thread_of(chat)
    request = transcript_pb2.ListEntriesRequest(thread=thread)

    async def is_gone() -> bool:
        entries = (await chat.system.transcript.ListEntries(request)).entries
        return not any(entry.HasField("content") for entry in entries)

    await eventually(is_gone)


async def thread_of(chat: Chat) -> reference_pb2.ThreadRef:
    """The session's thread, of a deleted one too."""
    request = turn_pb2.LocateThreadRequest(session_id=chat.id)
    return (await chat.system.turns.LocateThread(request)).thread
